package run

import (
	"slices"

	"golang.org/x/sys/unix"

	"rea/providers"
)

// Names of the quotas that fit lowers.
const (
	QuotaMemory   = "memory"
	QuotaEvidence = "evidence_bytes"
	QuotaScratch  = "scratch_bytes"
)

// Lowered is a quota that was lowered because of the host's size.
type Lowered struct {
	Quota string `json:"quota"`
	Need  int64  `json:"need"`  // bytes that the provider asks for
	Given int64  `json:"given"` // bytes
}

// headroom is what a run costs beside its own limit: the engine's process for it, and pages of runs before it that are
// not freed yet.
const headroom = 64 << 20

// charged is the memory limit of a run in bytes: the pages of its volumes count against it.
func charged(n providers.Needs) int64 {
	sum := n.Memory + n.EvidenceBytes
	for _, t := range n.Scratch {
		sum += t.Bytes
	}
	return sum
}

// fit lowers a run's quotas on a host that is too small for as many runs at once as may be under way. First a small
// target file gets what a file of its size is worth; then, if the run alone is still too large for the ceiling, evidence
// and scratch are lowered alike, and the program's own memory last. Nothing is lowered below the provider's Least: a
// run that does not fit even so is refused by who admits it. size is that of the target where it is a file, else -1.
func fit(n providers.Needs, size, ceiling, concurrent int64) (providers.Needs, []Lowered) {
	full := n
	n.Scratch = slices.Clone(n.Scratch)
	if ceiling <= 0 || charged(n)+headroom <= ceiling/concurrent {
		return full, nil
	}
	if per := n.Least.PerTargetByte; per > 0 && size >= 0 && size < ceiling { // a larger one is worth everything
		atMost := func(need *int64, least int64) { *need = min(*need, max(least, least+per*size)) }
		eachVolume(&n, atMost)
	}
	if over := charged(n) + headroom - ceiling; over > 0 {
		lower(over, func(yield func(need *int64, least int64)) { eachVolume(&n, yield) })
	}
	if over := charged(n) + headroom - ceiling; over > 0 {
		lower(over, func(yield func(need *int64, least int64)) { whereLowered(yield, &n.Memory, n.Least.Memory) })
	}
	return n, differences(full, n)
}

// eachVolume visits the quotas of evidence and scratch that may be lowered.
func eachVolume(n *providers.Needs, yield func(need *int64, least int64)) {
	whereLowered(yield, &n.EvidenceBytes, n.Least.EvidenceBytes)
	for i := range n.Scratch {
		whereLowered(yield, &n.Scratch[i].Bytes, n.Least.ScratchBytes)
	}
}

func whereLowered(yield func(need *int64, least int64), need *int64, least int64) {
	if least > 0 && *need > least {
		yield(need, least)
	}
}

// lower takes over bytes from these quotas, or all that they have above their least, from each in proportion to that.
func lower(over int64, quotas func(yield func(need *int64, least int64))) {
	var spare int64
	quotas(func(need *int64, least int64) { spare += *need - least })
	quotas(func(need *int64, least int64) {
		part := *need - least
		if over < spare {
			part = min(part, int64(float64(over)*float64(part)/float64(spare))+pageSize)
		}
		*need -= part
	})
}

func differences(full, given providers.Needs) []Lowered {
	var list []Lowered
	add := func(quota string, need, given int64) {
		if given < need {
			list = append(list, Lowered{quota, need, given})
		}
	}
	add(QuotaMemory, full.Memory, given.Memory)
	add(QuotaEvidence, full.EvidenceBytes, given.EvidenceBytes)
	for i := range full.Scratch {
		add(QuotaScratch, full.Scratch[i].Bytes, given.Scratch[i].Bytes)
	}
	return list
}

// fileSize is the size in bytes of a target that is one file, -1 for every other.
func (t *Target) fileSize() int64 {
	if t == nil || len(t.Roots) != 1 {
		return -1
	}
	var st unix.Stat_t
	if unix.Fstat(int(t.Roots[0].File.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1
	}
	return st.Size
}
