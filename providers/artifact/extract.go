package artifact

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/providers"
)

// Extraction is what a check learned of an extraction's result.
type Extraction struct {
	Inventory       // manifest, limitations and the contradictions of what was written; nothing else is set
	Files     int64 // files
	Bytes     int64 // their sizes together
	selected  []sum // occurrence identities, sorted

	artifactsEnd, manifestEnd int64 // where these members end in the result
}

// ExtractedEntry is one file of an extraction's result.
type ExtractedEntry struct {
	ArtifactID   string
	OccurrenceID string
	RelativePath string // where it belongs below the output root: plain components, unique
	File         string // its name below files/ of the run
	SHA256       string
	Size         int64
	Executable   bool
}

// extractionKeys are the members of the worker's part of an extraction's result.
var extractionKeys = []string{"artifacts", "integrity_contradictions", "limitations", "manifest", "provenance"}

// checkExtraction is the check of extract_artifact. The summary's Detail is an Extraction.
func checkExtraction(ctx context.Context, result io.Reader, params jsontext.Value) (providers.Summary, error) {
	p, err := parseParams(params)
	if err != nil {
		return providers.Summary{}, err
	}
	x, err := CheckExtraction(ctx, result)
	if err != nil {
		return providers.Summary{}, err
	}
	switch {
	case p.IntegrityPolicy == PolicyFail && x.ContradictionCount > 0:
		err = &flaw{at: "integrity_contradictions", reason: "the policy was to fail"}
	case p.Selected != nil && !slices.EqualFunc(p.Selected, x.selected, func(s string, o sum) bool { return s == id(prefixOccurrence, o) }):
		err = &flaw{at: "artifacts", reason: "they are not the occurrences that were selected"}
	}
	if err != nil {
		return providers.Summary{}, unreadable(OpExtract, err)
	}
	s := summary(x.Inventory)
	s.Detail = x
	return s, nil
}

// CheckExtraction reads the worker's part of an extraction's result as a stream and verifies it. Relative paths are
// plain, sorted, unique, and none is below another file. It holds 32 bytes for each file. Errors are those of
// CheckInventory.
func CheckExtraction(ctx context.Context, result io.Reader) (Extraction, error) {
	form := evidence.NewChecker()
	var x Extraction
	s := newScan(ctx, io.TeeReader(result, form), rule{own: true})
	s.keepPaths = true
	err := s.extraction(&x, func(ExtractedEntry) error { return nil })
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return Extraction{}, unreadable(OpExtract, err)
	}
	x.Inventory = s.inv
	return x, nil
}

// ExtractedFiles gives the files of a checked extraction result one by one, in the order of their relative paths.
func ExtractedFiles(ctx context.Context, result evidence.Payload, yield func(ExtractedEntry) error) error {
	r := result.Reader()
	defer r.Close()
	s := newScan(ctx, r, rule{own: true})
	var x Extraction
	return s.extraction(&x, yield)
}

// extraction reads a whole result.
func (s *scan) extraction(x *Extraction, yield func(ExtractedEntry) error) error {
	if err := s.token('{', "the result"); err != nil {
		return err
	}
	readers := []func() error{
		func() error { return s.readExtracted(x, yield) }, s.readContradictions, s.readLimitations, s.readManifest, s.readProvenance,
	}
	for i, read := range readers {
		if key, err := s.name(); err != nil || key != extractionKeys[i] {
			return cmp.Or(err, error(&flaw{at: "the result", reason: fmt.Sprintf("expected %s, found %.64q", extractionKeys[i], key)}))
		}
		if err := read(); err != nil {
			return err
		}
		switch extractionKeys[i] {
		case "artifacts":
			x.artifactsEnd = s.dec.InputOffset()
		case "manifest":
			x.manifestEnd = s.dec.InputOffset()
		}
	}
	if err := s.ended(); err != nil {
		return err
	}
	return s.concludeExtraction(x)
}

func (s *scan) readExtracted(x *Extraction, yield func(ExtractedEntry) error) error {
	var last string
	var open []int // lengths of earlier paths that are prefixes of the last, as strings
	err := s.list("artifacts", "", func(i int64, _ []byte, c *cursor) error {
		e, occurrence := s.readExtractedEntry(c)
		if !c.ok() {
			return nil
		}
		if i >= MaxEntries {
			return wrong("there are more files than %d", MaxEntries)
		}
		if i > 0 && e.RelativePath <= last {
			return wrong("files are not in the order of their paths")
		}
		for n := len(open); n > 0 && !strings.HasPrefix(e.RelativePath, last[:open[n-1]]); n-- {
			open = open[:n-1]
		}
		for _, n := range open {
			if e.RelativePath[n] == '/' {
				return wrong("a file stands below another file")
			}
		}
		last, open = e.RelativePath, append(open, len(e.RelativePath))
		x.Files++
		x.Bytes += e.Size
		x.selected = append(x.selected, occurrence)
		return yield(e)
	})
	slices.SortFunc(x.selected, func(a, b sum) int { return bytes.Compare(a[:], b[:]) })
	return err
}

func (s *scan) readExtractedEntry(c *cursor) (e ExtractedEntry, occurrence sum) {
	artifact := c.text(`{"artifact_id":`).id(prefixArtifact)
	e.Executable = c.text(`,"executable":`).bool()
	file := c.text(`,"file":`).string()
	occurrence = c.text(`,"occurrence_id":`).id(prefixOccurrence)
	path := c.text(`,"relative_path":`).string()
	content := c.text(`,"sha256":`).id("")
	e.Size = c.text(`,"size":`).int()
	c.text(`}`)
	if !c.ok() {
		return e, occurrence
	}
	e.ArtifactID, e.OccurrenceID, e.SHA256 = id(prefixArtifact, artifact), id(prefixOccurrence, occurrence), id("", content)
	e.File, e.RelativePath = string(unquote(nil, file)), string(unquote(nil, path))
	switch {
	case s.ids.artifact(content) != artifact:
		c.forge("an artifact_id that is that of its sha256")
	case !digits(e.File):
		c.fail("decimal digits as the name of a file")
	case !plainPath(e.RelativePath):
		c.fail("a plain relative path")
	}
	return e, occurrence
}

// digits reports whether s is a decimal number of plausible length.
func digits(s string) bool {
	return len(s) > 0 && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// concludeExtraction verifies what the order of the members did not allow before.
func (s *scan) concludeExtraction(x *Extraction) error {
	if x.Files == 0 {
		return &flaw{at: "artifacts", reason: "nothing was extracted"}
	}
	for i := range x.selected[1:] {
		if x.selected[i] == x.selected[i+1] {
			return &flaw{at: "artifacts", reason: "an occurrence was extracted twice"}
		}
	}
	for occurrence, row := range s.contradicted {
		_, ok := slices.BinarySearchFunc(x.selected, occurrence, func(a, b sum) int { return bytes.Compare(a[:], b[:]) })
		if !ok {
			return &flaw{at: "integrity_contradictions", reason: "one names a file that was not extracted"}
		}
		if s.keepPaths && s.ids.contradiction(s.root, row.quoted, row.declared, row.observed) != row.id {
			return &flaw{at: "integrity_contradictions", reason: "contradiction_id does not recompute", identity: true}
		}
	}
	return nil
}

// Destination says what became of an extraction on the user's machine, after the core verified and placed the files.
type Destination struct {
	OutputRoot          string // canonical absolute path
	ContainmentVerified bool   // every file was created below it, through directory descriptors, without links
	Cleanup             Cleanup
}

// Cleanup says what became of the staging area.
type Cleanup struct {
	Attempted     bool     `json:"attempted"`
	ResidualPaths []string `json:"residual_paths"`
	Verified      bool     `json:"verified"`
}

// ExtractionRequest is what was asked for.
type ExtractionRequest struct {
	Policy        Policy
	LogicalPaths  []string // nil where none were named
	OccurrenceIDs []string // nil where none were named
}

// outputRootAlias stands for the output root in identities.
const outputRootAlias = "$OUTPUT_ROOT"

// ExtractionRecord makes the Evidence of an extraction from the worker's checked result, which is read twice, and
// from what became of its files. The final result goes through sp. The record is sealed.
func ExtractionRecord(ctx context.Context, subject *evidence.Subject, req ExtractionRequest, result evidence.Payload, x Extraction, to Destination, sp evidence.Spooler) (*evidence.Record, error) {
	files, err := filesDigest(ctx, result)
	if err != nil {
		return nil, err
	}
	payload, err := sp.Spool(ctx, func(w io.Writer) error {
		e := newEncoder(ctx, w)
		if err := writeExtraction(ctx, e, result, x, to, files); err != nil {
			return err
		}
		return e.flush()
	})
	if err != nil {
		return nil, err
	}
	parameters := map[string]any{"integrity_policy": req.Policy}
	if req.LogicalPaths != nil {
		parameters["logical_paths"] = req.LogicalPaths
	}
	if req.OccurrenceIDs != nil {
		parameters["occurrence_ids"] = req.OccurrenceIDs
	}
	r, err := newRecord(OpExtract, parameters, payload)
	if err != nil {
		return nil, err
	}
	r.Subject, r.Confidence, r.Limitations = subject, evidence.Observed, x.Limitations
	return r, seal(r)
}

// filesDigest is files_sha256: the digest of the ordered list of the files.
func filesDigest(ctx context.Context, result evidence.Payload) (sum, error) {
	h := newHashWriter()
	h.text("[")
	var buf []byte
	err := ExtractedFiles(ctx, result, func(f ExtractedEntry) error {
		if buf != nil {
			h.text(",")
		}
		buf = append(appendFile(append(buf[:0], '{'), f), '}')
		h.write(buf)
		return nil
	})
	h.text("]")
	return h.sum(), err
}

// appendFile appends the members that a file has in files_sha256 and in the result: "created" comes between them.
func appendFile(dst []byte, f ExtractedEntry) []byte {
	dst = fmt.Appendf(dst, `"artifact_id":%q,"bytes_written":%d,"relative_path":`, f.ArtifactID, f.Size)
	dst = evidence.AppendString(dst, f.RelativePath)
	return fmt.Appendf(dst, `,"sha256":%q`, f.SHA256)
}

func writeExtraction(ctx context.Context, e *encoder, result evidence.Payload, x Extraction, to Destination, files sum) error {
	e.text(`{"artifacts":[`)
	begun := false
	err := ExtractedFiles(ctx, result, func(f ExtractedEntry) error {
		if begun {
			e.text(",")
		}
		begun = true
		e.text(`{"artifact_id":`).string(f.ArtifactID).text(`,"bytes_written":`).int(f.Size).text(`,"created":true,"relative_path":`)
		e.string(f.RelativePath).text(`,"sha256":`).string(f.SHA256).text(`}`)
		e.next()
		return e.err
	})
	if err != nil {
		return err
	}
	extraction, err := extractionID(x, files)
	if err != nil {
		return err
	}
	e.text(`],"cleanup":{"attempted":`).bool(to.Cleanup.Attempted).text(`,"residual_paths":`).strings(to.Cleanup.ResidualPaths)
	e.text(`,"verified":`).bool(to.Cleanup.Verified).text(`},"containment_verified":`).bool(to.ContainmentVerified)
	e.text(`,"extraction_manifest":{"extraction_id":`).string(extraction).text(`,"files_sha256":`).id("", files)
	e.text(`,"output_root_alias":"` + outputRootAlias + `","selected_occurrence_ids":`)
	e.list(len(x.selected), func(i int) { e.id(prefixOccurrence, x.selected[i]) })
	e.text(`,"source_manifest_id":`).string(x.Manifest.ManifestID).text(`},`)
	e.write()
	return copyMembers(e, result, x, to.OutputRoot)
}

// copyMembers copies everything behind the list of files and puts output_root where canonical order wants it.
func copyMembers(e *encoder, result evidence.Payload, x Extraction, outputRoot string) error {
	r := result.Reader()
	defer r.Close()
	comma := x.artifactsEnd + 1
	if _, err := io.CopyN(io.Discard, r, comma); err != nil {
		return err
	}
	if _, err := io.CopyN(e.w, r, x.manifestEnd-comma); err != nil {
		return err
	}
	e.text(`,"output_root":`).string(outputRoot)
	e.write()
	_, err := io.Copy(e.w, r)
	return err
}

// extractionID names an extraction.
func extractionID(x Extraction, files sum) (string, error) {
	selected := make([]string, len(x.selected))
	for i, s := range x.selected {
		selected[i] = id(prefixOccurrence, s)
	}
	return digestID(prefixExtraction, map[string]any{
		"source_manifest_id": x.Manifest.ManifestID, "selected_occurrence_ids": selected, "files_sha256": id("", files),
		"output_root_alias": outputRootAlias,
	})
}

// seal completes a record; what it refuses is our own mistake.
func seal(r *evidence.Record) error {
	if err := r.Seal(); err != nil {
		return fault.From(err)
	}
	return nil
}
