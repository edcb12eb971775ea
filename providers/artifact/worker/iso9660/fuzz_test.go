package iso9660

import (
	"bytes"
	"testing"

	"rea/providers/artifact/worker/imagetest"
)

// readAll walks both trees of an image. What an entry says of its bytes must lie in the image.
func readAll(t testing.TB, b []byte) (entries int, data int64, err error) {
	m, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0, 0, err
	}
	m.Walk(func(e *Entry) bool {
		if entries++; entries > len(b)/34+1 {
			t.Errorf("%d entries in %d bytes", entries, len(b))
		}
		for _, x := range e.Extents {
			if x.Start < 0 || x.Length <= 0 || x.Start > int64(len(b))-x.Length {
				t.Errorf("%+v in %d bytes", x, len(b))
			}
			data += x.Length
		}
		return true
	}, func([][]byte, error) {})
	m.Same()
	return entries, data, nil
}

func images(t testing.TB) [][]byte {
	var all [][]byte
	for _, args := range [][]string{{"-R"}, {"-J"}, {"-R", "-J"}, {"-R", "-udf"}} {
		if b, ok := imagetest.Make(t, imagetest.Tree(t), append(append([]string{"genisoimage", "-quiet"}, args...), "-o", "OUT", ".")...); ok {
			all = append(all, b)
		}
	}
	return all
}

func TestDamage(t *testing.T) {
	for _, b := range images(t) {
		if _, data, err := readAll(t, b); err != nil || data != 6+7500+9000+4 { // the sizes of the tree's files
			t.Errorf("the whole image gives %d bytes, %v", data, err)
		}
		for cut := 0; cut < len(b); cut += 4099 {
			_, _, _ = readAll(t, b[:cut])
		}
		for at := System; at < min(len(b), System+40*sector); at += 41 {
			c := bytes.Clone(b)
			c[at] ^= 0xff
			_, _, _ = readAll(t, c)
		}
	}
}

func FuzzISO9660(f *testing.F) {
	for _, b := range images(f) {
		f.Add(b[:min(len(b), System+60*sector)])
	}
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = readAll(t, b) })
}

// Trees that name other bytes are told apart; those that genisoimage makes of one list are not.
func TestSame(t *testing.T) {
	whole, ok := imagetest.Make(t, imagetest.Tree(t), "genisoimage", "-quiet", "-R", "-J", "-o", "OUT", ".")
	if !ok {
		t.Skip("genisoimage is not installed")
	}
	hidden, _ := imagetest.Make(t, imagetest.Tree(t), "genisoimage", "-quiet", "-R", "-J", "-hide-joliet", "a.txt", "-o", "OUT", ".")
	for name, c := range map[string]struct {
		image []byte
		same  bool
	}{"whole": {whole, true}, "hidden": {hidden, false}} {
		m, err := Open(bytes.NewReader(c.image), int64(len(c.image)))
		if err != nil {
			t.Fatal(err)
		}
		if same, read, other := m.Same(); same != c.same || read != 4 || other != 4 && c.same {
			t.Errorf("%s: same %v, %d and %d files", name, same, read, other)
		}
	}
}
