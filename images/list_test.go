package images

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
	"rea/sandbox"
)

// shelf is an engine that remembers digests; a nil shelf of an interface is no engine at all.
type shelf struct {
	digests map[string]bool
	broken  error
}

func (s *shelf) HasImage(_ context.Context, i sandbox.Image) (bool, error) {
	return s.digests[i.Digest], s.broken
}

func (s *shelf) LoadImage(_ context.Context, i sandbox.Image) error {
	s.digests[i.Digest] = true
	return s.broken
}

func TestInfo(t *testing.T) {
	image, state, ctx := assemble(t, program), t.TempDir(), context.Background()
	yes, no := true, false
	want := Info{Name: "static", Reference: image.Reference, Digest: image.Digest, Size: image.Size, WorkerSHA256: sum(program)}
	check := func(step string, e Engine, inEngine *bool, unpacked bool) {
		t.Helper()
		want.InEngine, want.Unpacked = inEngine, unpacked
		got, err := image.info(ctx, e, state)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	engine := &shelf{digests: map[string]bool{}}
	check("no engine", nil, nil, false)
	check("nothing made", engine, &no, false)
	if err := image.build(ctx, engine, state, false); err != nil {
		t.Fatal(err)
	}
	check("loaded", engine, &yes, false)
	if err := image.build(ctx, nil, state, true); err != nil {
		t.Fatal(err)
	}
	check("unpacked", engine, &yes, true)
	engine.broken = errors.New("gone")
	if _, err := image.info(ctx, engine, state); !errors.Is(err, engine.broken) {
		t.Errorf("a broken engine: %v", err)
	}
	if err := image.build(ctx, engine, state, false); !errors.Is(err, engine.broken) {
		t.Errorf("a broken engine: %v", err)
	}
}

func TestGetUnknown(t *testing.T) {
	_, err := Get("radare2")
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.InvalidRequest || !cmp.Equal(f.Details["known"], []string{"static"}) {
		t.Errorf("got %v", err)
	}
}
