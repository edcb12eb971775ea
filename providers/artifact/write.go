package artifact

import (
	"cmp"
	"context"
	"encoding/hex"
	"io"
	"slices"
	"strings"
)

// writeInventory writes the result of a sealed graph, keys in canonical order.
func (b *Builder) writeInventory(e *encoder) {
	e.text(`{`)
	if len(b.containers) > 0 {
		e.text(`"containers":`).list(len(b.containers), func(i int) { e.container(b.containers[i]) }).text(`,`)
	}
	e.text(`"coverage":{"scope":"`).text(string(b.coverage.Scope)).text(`","status":"`).text(string(b.coverage.Status))
	e.text(`"},"coverage_status":"`).text(b.coverage.Legacy()).text(`","edges":`)
	b.writeEdges(e)
	e.text(`,"integrity_contradictions":`)
	b.writeContradictions(e, b.contradictions)
	e.text(`,"limitations":`).list(len(b.limitations), func(i int) { e.string(b.limitations[i]) })
	e.text(`,"manifest":`).manifest(b.sealed.manifest).text(`,"nodes":`)
	b.writeNodes(e)
	e.text(`,"occurrences":`)
	b.writeOccurrences(e)
	e.text(`,"provenance":`).provenance(b.provenance).text(`}`)
}

func (b *Builder) writeEdges(e *encoder) {
	s := b.sealed
	e.list(len(s.edges), func(i int) {
		edge := &s.edges[i]
		r := b.row(edge.ref)
		relation, _ := relate(r.path, r.kindOfEntry())
		e.text(`{"edge_id":`).id(prefixEdge, edge.id).text(`,"occurrence_id":`).id(prefixOccurrence, s.occurrences[edge.ref])
		e.text(`,"ordinal":`).int(int64(i)).text(`,"parent_artifact_id":`).id(prefixArtifact, edge.parent)
		e.text(`,"producer":null,"relation":"`).text(string(relation)).text(`"}`)
	})
}

func (b *Builder) writeContradictions(e *encoder, list []Contradiction) {
	e.list(len(list), func(i int) { e.contradiction(list[i]) })
}

func (b *Builder) writeNodes(e *encoder) {
	s := b.sealed
	e.list(len(s.nodes), func(i int) {
		ref := s.nodes[i]
		r := b.row(ref)
		state := StateEmbedded
		switch {
		case ref == 0:
			state = StateMaterialized
		case r.kindOfEntry() == EntryDirectory:
			state = StateVirtual
		}
		e.text(`{"architecture":`).stringOr(b.names[r.architecture]).text(`,"artifact_id":`).id(prefixArtifact, s.artifacts[ref])
		e.text(`,"content_state":"`).text(string(state)).text(`","format":"`).text(string(formats[r.format]))
		e.text(`","limitations":`).strings(b.notesOf(ref).content).text(`,"media_type":`).stringOr(b.names[r.media])
		e.text(`,"sha256":`).id("", r.content).text(`,"size":`).int(max(r.size, 0)).text(`}`)
	})
}

func (b *Builder) writeOccurrences(e *encoder) {
	s := b.sealed
	e.list(len(s.order), func(i int) {
		ref := s.order[i]
		r := b.row(ref)
		e.text(`{"artifact_format":"`).text(string(formats[r.place])).text(`","artifact_id":`)
		e.idOr(prefixArtifact, s.artifacts[ref], r.has(flagContent)).text(`,"artifact_kind":"`).text(string(kinds[r.kind]))
		e.text(`","compressed_size":`).size(r.compressed).text(`,"declared_size":`).size(r.declared)
		e.text(`,"encrypted":`).bool(r.has(flagEncrypted)).text(`,"entry_kind":"`).text(string(r.kindOfEntry()))
		e.text(`","executable":`).bool(r.has(flagExecutable)).text(`,"hash_status":"`).text(string(hashStatuses[r.status]))
		e.text(`","limitations":`).strings(b.notesOf(ref).place).text(`,"logical_path":`).string(r.path)
		e.text(`,"occurrence_id":`).id(prefixOccurrence, s.occurrences[ref])
		if r.has(flagRepeats) {
			e.text(`,"ordinal":`).int(int64(r.ordinal))
		}
		e.text(`,"parent_occurrence_id":`).idOr(prefixOccurrence, s.occurrences[r.parent], ref != 0)
		if r.offset < 0 {
			e.text(`,"source_location":null}`)
			return
		}
		e.text(`,"source_location":{"length":`).int(r.length).text(`,"offset":`).int(r.offset).text(`}}`)
	})
}

// ExtractedFile is one file that extract_artifact wrote into the files folder of its evidence volume.
type ExtractedFile struct {
	Ref          Ref
	File         string // its name below files/, decimal digits
	RelativePath string // where it belongs below the output root: plain components, unique
}

// FinishExtraction seals the graph and writes the worker's part of an extraction's result: manifest, files in the
// order of their relative paths, and the contradictions of exactly these files.
func (b *Builder) FinishExtraction(ctx context.Context, w io.Writer, files []ExtractedFile) error {
	if _, err := b.Seal(ctx); err != nil {
		return err
	}
	files = slices.SortedFunc(slices.Values(files), func(x, y ExtractedFile) int {
		return cmp.Or(strings.Compare(x.RelativePath, y.RelativePath), cmp.Compare(x.Ref, y.Ref))
	})
	written := make(map[string]bool, len(files))
	for _, f := range files {
		if !b.row(f.Ref).has(flagContent) {
			return mistake("%.200q was extracted without content", f.RelativePath)
		}
		written[b.OccurrenceID(f.Ref)] = true
	}
	contradictions := slices.DeleteFunc(slices.Clone(b.contradictions), func(c Contradiction) bool { return !written[c.OccurrenceID] })
	e := b.encoder(ctx, w)
	e.text(`{"artifacts":`)
	e.list(len(files), func(i int) { b.writeExtracted(e, files[i]) })
	e.text(`,"integrity_contradictions":`)
	b.writeContradictions(e, contradictions)
	e.text(`,"limitations":`).list(len(b.limitations), func(i int) { e.string(b.limitations[i]) })
	e.text(`,"manifest":`).manifest(b.sealed.manifest).text(`,"provenance":`).provenance(b.provenance).text(`}`)
	return e.flush()
}

func (b *Builder) writeExtracted(e *encoder, f ExtractedFile) {
	r := b.row(f.Ref)
	e.text(`{"artifact_id":`).id(prefixArtifact, b.sealed.artifacts[f.Ref]).text(`,"executable":`).bool(r.has(flagExecutable))
	e.text(`,"file":`).string(f.File).text(`,"occurrence_id":`).id(prefixOccurrence, b.sealed.occurrences[f.Ref])
	e.text(`,"relative_path":`).string(f.RelativePath).text(`,"sha256":"`).text(hex.EncodeToString(r.content[:]))
	e.text(`","size":`).int(max(r.size, 0)).text(`}`)
}
