package artifact

import "strings"

// Format names what bytes are, or what a place says that they are: the closed set of root and occurrence formats.
type Format string

// The formats.
const (
	FormatDMG              Format = "dmg"
	FormatZip              Format = "zip"
	FormatPkg              Format = "pkg"
	FormatASAR             Format = "asar"
	FormatJavaScriptBundle Format = "javascript-bundle"
	FormatSourceMap        Format = "source-map"
	FormatMachOUniversal   Format = "mach-o-universal"
	FormatMachO            Format = "mach-o"
	FormatELF              Format = "elf"
	FormatPE               Format = "pe"
	FormatDOSMZ            Format = "dos-mz"
	FormatDOSCOM           Format = "dos-com"
	FormatHopper           Format = "hopper"
	FormatAnalysisDatabase Format = "analysis-database"
	FormatIPA              Format = "ipa"
	FormatAPK              Format = "apk"
	FormatHAP              Format = "hap"
	FormatMSIX             Format = "msix"
	FormatAppX             Format = "appx"
	FormatPlist            Format = "plist"
	FormatEntitlements     Format = "entitlements"
	FormatDirectory        Format = "directory"
	FormatFile             Format = "file"
	FormatUnknown          Format = "unknown"
	FormatTar              Format = "tar"
	FormatGzip             Format = "gzip"
	FormatBzip2            Format = "bzip2"
	FormatXZ               Format = "xz"
	FormatZstd             Format = "zstd"
	FormatAr               Format = "ar"
	FormatDeb              Format = "deb"
	FormatRPM              Format = "rpm"
	Format7z               Format = "7z"
	FormatISO9660          Format = "iso9660"
	FormatSquashFS         Format = "squashfs"
	FormatCpio             Format = "cpio"
	FormatLZMA             Format = "lzma" // the old stream format with no mark of its own ("alone")
	FormatPbzx             Format = "pbzx" // pieces of xz, in Apple's packages
	FormatXar              Format = "xar"  // an installer package is one under the suffix .pkg
	FormatCab              Format = "cab"
	FormatAppImage         Format = "appimage" // an ELF program that carries an image
	FormatOLE              Format = "ole"      // a compound file: old Office documents, thumbnails, installers
	FormatMSI              Format = "msi"      // a compound file under the suffix of a Windows Installer database
	FormatHFSPlus          Format = "hfs-plus"
	FormatAPFS             Format = "apfs"
	FormatUDF              Format = "udf"
	FormatCRX              Format = "crx" // a browser extension: a zip behind a header with signatures
)

// formats is the closed set; a format's index is how a Builder stores it.
var formats = []Format{
	FormatDMG, FormatZip, FormatPkg, FormatASAR, FormatJavaScriptBundle, FormatSourceMap, FormatMachOUniversal,
	FormatMachO, FormatELF, FormatPE, FormatDOSMZ, FormatDOSCOM, FormatHopper, FormatAnalysisDatabase, FormatIPA,
	FormatAPK, FormatHAP, FormatMSIX, FormatAppX, FormatPlist, FormatEntitlements, FormatDirectory, FormatFile,
	FormatUnknown, FormatTar, FormatGzip, FormatBzip2, FormatXZ, FormatZstd, FormatAr, FormatDeb, FormatRPM, Format7z,
	FormatISO9660, FormatSquashFS, FormatCpio, FormatLZMA, FormatPbzx, FormatXar, FormatCab, FormatCRX, FormatAppImage,
	FormatOLE, FormatMSI, FormatHFSPlus, FormatAPFS, FormatUDF,
}

// Kind is the role of an occurrence: what its place makes of its content.
type Kind string

// The kinds.
const (
	KindContainer       Kind = "container"
	KindExecutable      Kind = "executable"
	KindDynamicLibrary  Kind = "dynamic-library"
	KindFramework       Kind = "framework"
	KindNativeAddon     Kind = "native-addon"
	KindJavaScript      Kind = "javascript"
	KindSourceMap       Kind = "source-map"
	KindPlist           Kind = "plist"
	KindEntitlements    Kind = "entitlements"
	KindResource        Kind = "resource"
	KindUniversalSlice  Kind = "universal-slice"
	KindPackageMetadata Kind = "package-metadata"
	KindUnknown         Kind = "unknown"
)

var kinds = []Kind{
	KindContainer, KindExecutable, KindDynamicLibrary, KindFramework, KindNativeAddon, KindJavaScript, KindSourceMap,
	KindPlist, KindEntitlements, KindResource, KindUniversalSlice, KindPackageMetadata, KindUnknown,
}

// EntryKind is what a place is.
type EntryKind string

// The entry kinds, in the order in which entries of one path stand.
const (
	EntryDirectory EntryKind = "directory"
	EntryFile      EntryKind = "file"
	EntrySlice     EntryKind = "slice"
	EntrySymlink   EntryKind = "symlink"
)

var entryKinds = []EntryKind{EntryDirectory, EntryFile, EntrySlice, EntrySymlink}

// HashStatus says what is known of an occurrence's bytes.
type HashStatus string

// The hash statuses.
const (
	HashVerified    HashStatus = "verified"    // read, and equal to the declared digest where there is one
	HashMismatched  HashStatus = "mismatched"  // read, and different from the declared digest
	HashNotHashed   HashStatus = "not-hashed"  // not read: a guard, or an entry that has no bytes of its own
	HashUnavailable HashStatus = "unavailable" // could not be read
)

var hashStatuses = []HashStatus{HashVerified, HashMismatched, HashNotHashed, HashUnavailable}

// Relation is what an edge says about its two ends.
type Relation string

// The relations. Our own producers write contains, slice-of, embeds and maps-source; the rest stands in records of
// other producers.
const (
	RelationContains    Relation = "contains"
	RelationExtracts    Relation = "extracts"
	RelationSliceOf     Relation = "slice-of"
	RelationEmbeds      Relation = "embeds"
	RelationLoads       Relation = "loads"
	RelationMapsSource  Relation = "maps-source"
	RelationDerivedFrom Relation = "derived-from"
)

var relations = []Relation{
	RelationContains, RelationExtracts, RelationSliceOf, RelationEmbeds, RelationLoads, RelationMapsSource,
	RelationDerivedFrom,
}

// ContentState says where a node's bytes are.
type ContentState string

// The content states.
const (
	StateMaterialized ContentState = "materialized" // the root file or the root directory
	StateEmbedded     ContentState = "embedded"     // bytes inside a container or a tree
	StateVirtual      ContentState = "virtual"      // a directory, whose digest is that of its list of children
)

var contentStates = []ContentState{StateMaterialized, StateEmbedded, StateVirtual}

// Policy says what a mismatch between a declared and an observed digest does to an operation.
type Policy string

// The integrity policies. PolicyFail is the default.
const (
	PolicyFail   Policy = "fail"
	PolicyRecord Policy = "record-and-continue"
)

// Known reports whether p is one of the two policies.
func (p Policy) Known() bool { return p == PolicyFail || p == PolicyRecord }

// index gives the position of v in set, or -1. The sets are small.
func index[T comparable](set []T, v T) int {
	for i, s := range set {
		if s == v {
			return i
		}
	}
	return -1
}

// Role gives the role of an occurrence from its logical path and its content's format. Suffixes are compared without
// regard to ASCII case. A path that says native add-on or dynamic library keeps that whatever the bytes are; otherwise
// executable bytes make it an executable; otherwise the path decides; a directory, or container bytes under a path
// that says nothing, are a container.
func Role(path string, content Format) Kind {
	if content == FormatDirectory {
		if inFramework(path) {
			return KindFramework
		}
		return KindContainer
	}
	byPath := roleByPath(path)
	switch {
	case byPath == KindNativeAddon || byPath == KindDynamicLibrary:
		return byPath
	case content.Executable():
		return KindExecutable
	case byPath == KindResource && content.Container():
		return KindContainer
	}
	return byPath
}

// containerSuffixes are the suffixes that say container by path alone.
var containerSuffixes = []string{
	".asar", ".zip", ".jar", ".aab", ".aar", ".war", ".ear", ".nupkg", ".whl", ".vsix", ".ipa", ".apk", ".hap", ".msix",
	".msixbundle", ".appx", ".appxbundle", ".tar", ".tgz", ".tbz2", ".txz", ".tzst", ".gz", ".bz2", ".xz", ".zst",
	".ar", ".a", ".deb", ".rpm", ".7z", ".iso", ".squashfs", ".dmg", ".pkg",
	".cpio", ".lzma", ".tlz", ".xar", ".mpkg", ".xip", ".cab", ".crx", ".xpi", ".egg",
	".snap", ".appimage", ".msi", ".msp", ".msm", ".udf",
}

func roleByPath(path string) Kind {
	name := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case hasSuffix(name, ".map"):
		return KindSourceMap
	case hasSuffix(name, ".js", ".mjs", ".cjs"):
		return KindJavaScript
	case hasSuffix(name, containerSuffixes...):
		return KindContainer
	case inFramework(path):
		return KindFramework
	case hasSuffix(name, ".node"):
		return KindNativeAddon
	case hasSuffix(name, ".dylib", ".so"):
		return KindDynamicLibrary
	case hasSuffix(name, ".plist"):
		return KindPlist
	case hasSuffix(name, ".entitlements"):
		return KindEntitlements
	}
	return KindResource
}

// OccurrenceFormat gives the format of a place from its logical path and its content's format: the suffix may say
// more than the bytes (a script, a source map, an application package that is a zip).
func OccurrenceFormat(path string, content Format) Format {
	name := path[strings.LastIndexByte(path, '/')+1:]
	switch content {
	case FormatFile:
		switch {
		case hasSuffix(name, ".js", ".mjs", ".cjs"):
			return FormatJavaScriptBundle
		case hasSuffix(name, ".map"):
			return FormatSourceMap
		}
	case FormatZip:
		switch {
		case hasSuffix(name, ".ipa"):
			return FormatIPA
		case hasSuffix(name, ".apk"):
			return FormatAPK
		case hasSuffix(name, ".hap"):
			return FormatHAP
		case hasSuffix(name, ".msix", ".msixbundle"):
			return FormatMSIX
		case hasSuffix(name, ".appx", ".appxbundle"):
			return FormatAppX
		}
	case FormatXar:
		if hasSuffix(name, ".pkg") {
			return FormatPkg
		}
	case FormatOLE:
		if hasSuffix(name, ".msi", ".msp", ".msm") {
			return FormatMSI
		}
	case FormatPlist:
		if hasSuffix(name, ".entitlements") {
			return FormatEntitlements
		}
	}
	return content
}

// Executable reports whether f is a native executable's format.
func (f Format) Executable() bool {
	switch f {
	case FormatMachO, FormatMachOUniversal, FormatELF, FormatPE, FormatDOSMZ, FormatDOSCOM, FormatAppImage:
		return true
	}
	return false
}

// Container reports whether f is the format of something that holds entries or another file.
func (f Format) Container() bool {
	switch f {
	case FormatDMG, FormatZip, FormatPkg, FormatASAR, FormatIPA, FormatAPK, FormatHAP, FormatMSIX, FormatAppX,
		FormatDirectory, FormatTar, FormatGzip, FormatBzip2, FormatXZ, FormatZstd, FormatAr, FormatDeb, FormatRPM,
		Format7z, FormatISO9660, FormatSquashFS, FormatCpio, FormatLZMA, FormatPbzx, FormatXar, FormatCab, FormatCRX,
		FormatAppImage, FormatOLE, FormatMSI, FormatHFSPlus, FormatAPFS, FormatUDF:
		return true
	}
	return false
}

// hasSuffix reports whether name has one of the lower-case ASCII suffixes, whatever its own case.
func hasSuffix(name string, suffixes ...string) bool {
	for _, s := range suffixes {
		if len(name) >= len(s) && equalFoldASCII(name[len(name)-len(s):], s) {
			return true
		}
	}
	return false
}

// equalFoldASCII compares without Unicode folding, so that a Kelvin sign is not a k.
func equalFoldASCII(a, lower string) bool {
	for i := range len(lower) {
		c := a[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// inFramework reports whether a component of path ends in .framework.
func inFramework(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if hasSuffix(part, ".framework") {
			return true
		}
	}
	return false
}
