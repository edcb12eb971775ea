package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vectorInventory is the complete sample of the contract, as it stands there.
const vectorInventory = `{"manifest":{"manifest_id":"agm_779bf4c174bd9175eff08a0c2efcd78eafdccabec0cb677b949f7676155d5487","root_artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","root_sha256":"626f2750747770d4e5eec44f0d13fcfa45b66a28f047f247b3d0198c6fe27b24","root_format":"zip","graph_sha256":"7ef73ab6be9cf3536fcf665c38767f0b3a46e9a95ad795686a37e90b0be40ad4","node_count":3,"occurrence_count":3,"edge_count":2},
"nodes":[
{"artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","format":"zip","sha256":"626f2750747770d4e5eec44f0d13fcfa45b66a28f047f247b3d0198c6fe27b24","size":15,"media_type":null,"architecture":null,"content_state":"materialized","limitations":[]},
{"artifact_id":"art_a950389b19d54f4300ed4f346db72de986c74f54d8e3830a685addcbc99f9f2f","format":"file","sha256":"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03","size":6,"media_type":null,"architecture":null,"content_state":"embedded","limitations":[]},
{"artifact_id":"art_c74cb5c2cd1324f13e8b57eae0c2e21926771429711f7c04f9f7979911f77945","format":"directory","sha256":"a2e39485159dea467fdf204ae6fd5b5c8a5840f3571df91530e617aa5db5d0b9","size":0,"media_type":null,"architecture":null,"content_state":"virtual","limitations":[]}],
"occurrences":[
{"occurrence_id":"occ_b5753a6a188e26907c1d2d74f45e88d05a87821d531284632d2791285d74a3d5","artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","parent_occurrence_id":null,"logical_path":".","entry_kind":"file","artifact_kind":"container","artifact_format":"zip","declared_size":15,"compressed_size":null,"executable":false,"encrypted":false,"hash_status":"verified","source_location":null,"limitations":[]},
{"occurrence_id":"occ_9f58630f7fed1cf89d613f1965113530abadd397597bddadc4ed41dcefdc7878","artifact_id":"art_c74cb5c2cd1324f13e8b57eae0c2e21926771429711f7c04f9f7979911f77945","parent_occurrence_id":"occ_b5753a6a188e26907c1d2d74f45e88d05a87821d531284632d2791285d74a3d5","logical_path":"docs","entry_kind":"directory","artifact_kind":"container","artifact_format":"directory","declared_size":0,"compressed_size":0,"executable":false,"encrypted":false,"hash_status":"verified","source_location":null,"limitations":[]},
{"occurrence_id":"occ_e0e56020a85e367718af167847582cfb7efdb178bcb216ddf04da825276abf6c","artifact_id":"art_a950389b19d54f4300ed4f346db72de986c74f54d8e3830a685addcbc99f9f2f","parent_occurrence_id":"occ_9f58630f7fed1cf89d613f1965113530abadd397597bddadc4ed41dcefdc7878","logical_path":"docs/a.txt","entry_kind":"file","artifact_kind":"resource","artifact_format":"file","declared_size":6,"compressed_size":6,"executable":false,"encrypted":false,"hash_status":"verified","source_location":null,"limitations":[]}],
"edges":[
{"edge_id":"edge_8a1fe0460cc2ff0889bf156f08471d3d5b832b4482dec04472c1c18e991d8f8c","parent_artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","relation":"contains","occurrence_id":"occ_9f58630f7fed1cf89d613f1965113530abadd397597bddadc4ed41dcefdc7878","producer":null,"ordinal":0},
{"edge_id":"edge_f3673a5a3bb88904f920e9cda73e892b4e05db98441575e0196e8c75802365fa","parent_artifact_id":"art_c74cb5c2cd1324f13e8b57eae0c2e21926771429711f7c04f9f7979911f77945","relation":"contains","occurrence_id":"occ_e0e56020a85e367718af167847582cfb7efdb178bcb216ddf04da825276abf6c","producer":null,"ordinal":1}],
"provenance":[],"integrity_contradictions":[],"limitations":[],"coverage":{"scope":"container-entries","status":"complete"},"coverage_status":"complete"}`

// content is the identity of some bytes.
func content(text string) *Content {
	return &Content{SHA256: sha256.Sum256([]byte(text)), Size: int64(len(text))}
}

// mustAdd adds an entry that must be taken.
func mustAdd(t testing.TB, b *Builder, e Entry) Ref {
	t.Helper()
	ref, err := b.Add(e)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// finish gives the finished inventory.
func finish(t testing.TB, b *Builder) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := b.Finish(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// meaning decodes any JSON, for comparisons that do not depend on the order of keys.
func meaning(t testing.TB, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %.300s", err, raw)
	}
	return v
}

// vectorBuilder feeds the contract's sample.
func vectorBuilder(t testing.TB) *Builder {
	b := NewBuilder(Root{Format: FormatZip})
	b.SetContent(0, *content("container bytes"))
	b.SetScope(ScopeEntries)
	mustAdd(t, b, Entry{Path: "docs/a.txt", EntryKind: EntryFile, Format: FormatFile, Content: content("hello\n"),
		DeclaredSize: SizeOf(6), CompressedSize: SizeOf(6)})
	return b
}

// TestVector builds the sample of the contract; the expected value is the contract's text, byte for byte.
func TestVector(t *testing.T) {
	got := finish(t, vectorBuilder(t))
	if diff := cmp.Diff(meaning(t, []byte(vectorInventory)), meaning(t, got)); diff != "" {
		t.Error(diff)
	}
}
