package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/go-json-experiment/json"
)

// KindRunDirectory is the kind of the entries that RunDir writes.
const KindRunDirectory = "temporary_directory"

// maxLine bounds one line of a journal, and so what reading one allocates. A line holds a name, which is a path of at
// most 4 KiB, and a few details.
const maxLine = 64 << 10

// Entry is one resource on the host that an owner made or was about to make.
type Entry struct {
	Seq       uint64            // position in its owner's journal, from 1; identifies the entry there
	Run       string            // run that it was made for, "" for what belongs to the owner itself
	Kind      string            // kind as receipts name it
	Name      string            // how to find it: container name, cgroup path, host path
	Detail    map[string]string // what else a sweeper needs
	At        time.Time         // when it was written, before the resource was made
	Confirmed bool              // the resource was seen to exist
}

// op is what a journal line says.
type op string

const (
	opMake    op = "make"
	opConfirm op = "confirm"
	opGone    op = "gone"
	opDead    op = "dead" // a sweeper found the owner dead, At is when
)

// line is one line of journal.ndjson.
type line struct {
	Op     op                `json:"op"`
	Seq    uint64            `json:"seq,omitzero"`
	Run    string            `json:"run,omitzero"`
	Kind   string            `json:"kind,omitzero"`
	Name   string            `json:"name,omitzero"`
	Detail map[string]string `json:"detail,omitempty"`
	At     time.Time         `json:"at,omitzero"`
}

// ledger is the content of a journal: the live entries in the order in which they were made.
type ledger struct {
	next  uint64 // last sequence number in use
	live  []Entry
	died  time.Time // when the owner was first found dead, zero if never
	whole int64     // bytes up to and including the last complete line

	damage string // what is wrong with the first complete line that says nothing, "" for a sound journal
}

// lose notes a line that says nothing.
func (l *ledger) lose(number int, err error) {
	if l.damage == "" {
		l.damage = fmt.Sprintf("line %d of its journal is damaged: %v", number, err)
	}
}

// apply brings the ledger up to date with one line.
func (l *ledger) apply(n line) error {
	if n.Op == opDead {
		if l.died.IsZero() {
			l.died = n.At
		}
		return nil
	}
	if n.Op == opMake {
		if n.Seq <= l.next {
			return fmt.Errorf("entry %d follows entry %d", n.Seq, l.next)
		}
		l.next = n.Seq
		l.live = append(l.live, Entry{Seq: n.Seq, Run: n.Run, Kind: n.Kind, Name: n.Name, Detail: n.Detail, At: n.At})
		return nil
	}
	i := l.find(n.Seq)
	switch {
	case i < 0 && n.Seq > l.next:
		return fmt.Errorf("%s of entry %d, which was never made", n.Op, n.Seq)
	case i < 0: // said twice: a crash between the write and the answer
	case n.Op == opConfirm:
		l.live[i].Confirmed = true
	case n.Op == opGone:
		l.live = append(l.live[:i], l.live[i+1:]...)
	default:
		return fmt.Errorf("unknown operation %q", n.Op)
	}
	return nil
}

// find gives the index of a live entry, or -1.
func (l *ledger) find(seq uint64) int {
	for i := range l.live {
		if l.live[i].Seq == seq {
			return i
		}
	}
	return -1
}

// entries returns a copy of the live entries that keep holds for.
func (l *ledger) entries(keep func(Entry) bool) []Entry {
	var out []Entry
	for _, e := range l.live {
		if keep == nil || keep(e) {
			e.Detail = maps.Clone(e.Detail)
			out = append(out, e)
		}
	}
	return out
}

// read parses a journal. A last line without its end is what a crash in mid-write leaves: nothing was made for it
// yet, so it is passed over. Any other damage is noted and the readable lines stand: a lost line may be a resource that
// only a look at the host finds. A journal that does not exist is empty.
func read(path string) (*ledger, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &ledger{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f)
}

func parse(r io.Reader) (*ledger, error) {
	l := &ledger{}
	lines := bufio.NewReaderSize(r, maxLine)
	for number := 1; ; number++ {
		text, err := lines.ReadSlice('\n')
		length := int64(len(text))
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			text, err = lines.ReadSlice('\n')
			length += int64(len(text))
		}
		switch {
		case errors.Is(err, io.EOF):
			return l, nil
		case err != nil:
			return nil, err
		case tooLong:
			l.lose(number, fmt.Errorf("it has more than %d bytes", maxLine))
		default:
			if err := l.take(text); err != nil {
				l.lose(number, err)
			}
		}
		l.whole += length
	}
}

// take applies the text of one line.
func (l *ledger) take(text []byte) error {
	var n line
	if err := json.Unmarshal(text, &n, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	return l.apply(n)
}
