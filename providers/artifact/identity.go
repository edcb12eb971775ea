package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"rea/evidence"
)

// Prefixes of the identity families. An identity is its prefix and the hex SHA-256 of a canonical projection.
const (
	prefixArtifact      = "art_"
	prefixOccurrence    = "occ_"
	prefixEdge          = "edge_"
	prefixManifest      = "agm_"
	prefixContradiction = "ic_"
	prefixExtraction    = "aex_"
)

// sum is an identity without its prefix, or a content digest.
type sum = [32]byte

// identifier computes identities. The canonical projections are written directly as bytes: their keys are fixed and
// sorted here by hand, and a test holds each of them against the generic encoder. Paths come as canonical JSON
// strings with their quotes, so that a reader of results need not decode them. The zero value is ready; it is for one
// goroutine.
type identifier struct{ buf []byte }

func (d *identifier) hash() sum { return sha256.Sum256(d.buf) }

func (d *identifier) text(s string) *identifier { d.buf = append(d.buf, s...); return d }

func (d *identifier) hex(s sum) *identifier { d.buf = hex.AppendEncode(d.buf, s[:]); return d }

func (d *identifier) begin(s string) *identifier { d.buf = append(d.buf[:0], s...); return d }

// artifact is the identity of a content.
func (d *identifier) artifact(content sum) sum {
	d.begin(`{"sha256":"`).hex(content).text(`"}`)
	return d.hash()
}

// root is the identity of the root occurrence.
func (d *identifier) root(artifact sum) sum {
	d.begin(`{"root":"art_`).hex(artifact).text(`"}`)
	return d.hash()
}

// occurrence is the identity of any other occurrence. ordinal takes part only above 0.
func (d *identifier) occurrence(root sum, path []byte, kind EntryKind, ordinal int64) sum {
	d.begin(`{"entry_kind":"`).text(string(kind)).text(`","logical_path":`)
	d.buf = append(d.buf, path...)
	if ordinal > 0 {
		d.text(`,"ordinal":`)
		d.buf = strconv.AppendInt(d.buf, ordinal, 10)
	}
	d.text(`,"root_artifact_id":"art_`).hex(root).text(`"}`)
	return d.hash()
}

// edge is the identity of an edge.
func (d *identifier) edge(parent, child sum, relation Relation, occurrence sum, path []byte) sum {
	d.begin(`{"child_artifact_id":"art_`).hex(child).text(`","logical_path":`)
	d.buf = append(d.buf, path...)
	d.text(`,"occurrence_id":"occ_`).hex(occurrence).text(`","parent_artifact_id":"art_`).hex(parent)
	d.text(`","relation":"`).text(string(relation)).text(`"}`)
	return d.hash()
}

// contradiction is the identity of an integrity contradiction.
func (d *identifier) contradiction(root sum, path []byte, declared, observed sum) sum {
	d.begin(`{"declared_sha256":"`).hex(declared).text(`","logical_path":`)
	d.buf = append(d.buf, path...)
	d.text(`,"observed_sha256":"`).hex(observed).text(`","root_artifact_id":"art_`).hex(root).text(`"}`)
	return d.hash()
}

// manifest is the identity of a graph.
func (d *identifier) manifest(root, graph sum) sum {
	d.begin(`{"graph_sha256":"`).hex(graph).text(`","root_artifact_id":"art_`).hex(root).text(`"}`)
	return d.hash()
}

// id prints an identity.
func id(prefix string, s sum) string { return prefix + hex.EncodeToString(s[:]) }

// digestID is the identity of any value under a prefix, by the generic encoder: for the few that are not in a loop.
func digestID(prefix string, v any) (string, error) {
	h, err := evidence.Digest(v)
	return prefix + h, err
}

// relate is the rule of the contract for the edge of an occurrence: its relation, and whether its parent is the sibling
// that it maps, where that exists, rather than what it stands in.
func relate(path string, kind EntryKind) (r Relation, sibling bool) {
	switch {
	case kind == EntrySlice:
		return RelationSliceOf, false
	case hasSuffix(path, mapSuffix):
		return RelationMapsSource, true
	case strings.Contains(path, ".framework/"):
		return RelationEmbeds, false
	}
	return RelationContains, false
}

// mapSuffix ends the name of a source map; without it stands what the map describes.
const mapSuffix = ".map"

// parentDir is the path of what an occurrence stands in: everything before the last slash, "." at the top.
func parentDir(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return rootPath
}

const rootPath = "."
