package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/journal"
)

// Swept says what became of one dead owner's resources.
type Swept struct {
	Owner   string             `json:"owner"`
	Made    []sandbox.Resource `json:"made"`
	Remains []sandbox.Resource `json:"remains"`
	Reason  string             `json:"reason"` // why something remains, "" otherwise
	Held    int                `json:"held"`   // creates whose answer was never seen: looked for again later
	Damage  string             `json:"damage"` // what of its journal could not be read, "" otherwise: the host itself was searched too
}

// Sweep finishes what dead processes left, and only that: an owner whose lock is held is alive and is not touched.
// The error joins what could not be read; what could not be removed is in the result.
func (h *Host) Sweep(ctx context.Context) ([]Swept, error) {
	dead, err := journal.DeadOwners(ctx, h.config.StateDir)
	if len(dead) == 0 {
		return nil, err
	}
	drivers, derr := h.drivers(DriverAuto) // a dead owner may have used another driver than we do
	err = errors.Join(err, derr)
	var all []Swept
	for _, d := range dead {
		all = append(all, sweepOwner(ctx, d, drivers))
	}
	return all, err
}

func sweepOwner(ctx context.Context, d *journal.Dead, drivers []sandbox.Runtime) Swept {
	s := Swept{Owner: d.ID(), Made: []sandbox.Resource{}, Remains: []sandbox.Resource{}, Damage: d.Damage()}
	if s.Damage != "" {
		if err := salvage(ctx, d, drivers); err != nil {
			d.Keep() // a later sweep looks again
			s.Reason = fault.From(err).Message
		}
	}
	for _, driver := range drivers {
		receipt, err := driver.Sweep(ctx, d)
		s.Made = append(s.Made, receipt.Made...)
		s.Remains = append(s.Remains, receipt.Remains...)
		if s.Reason == "" {
			s.Reason = receipt.Reason
		}
		if err != nil && s.Reason == "" {
			s.Reason = fault.From(err).Message
		}
	}
	sweepStaging(d, &s)
	s.Held = len(d.Held())
	if err := d.Finish(); err != nil {
		if s.Reason == "" {
			s.Reason = fault.From(err).Message
		}
		if len(s.Remains) == 0 {
			for _, e := range d.Entries() {
				s.Remains = append(s.Remains, sandbox.Resource{Kind: e.Kind, Name: e.Name})
			}
		}
		d.Close()
	}
	return s
}

// collect brings the store back within its budget.
func (h *Host) collect(ctx context.Context) {
	st, err := h.Store()
	if err == nil {
		_, err = st.GC(ctx, false)
	}
	if err != nil && ctx.Err() == nil {
		h.config.Log(fmt.Sprintf("collect: %v", err))
	}
}

// sweepRegularly sweeps and collects, now and then, for as long as the process lives.
func (h *Host) sweepRegularly(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		swept, err := h.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			h.config.Log(fmt.Sprintf("sweep: %v", err))
		}
		for _, s := range swept {
			h.config.Log(fmt.Sprintf("swept what process %s left: %d resources, %d remain", s.Owner, len(s.Made), len(s.Remains)))
		}
		h.collect(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweepStaging removes the staging directories that a dead owner's extractions left.
func sweepStaging(d *journal.Dead, s *Swept) {
	for _, e := range d.Entries() {
		if e.Kind != kindStaging {
			continue
		}
		resource := sandbox.Resource{Kind: e.Kind, Name: e.Name}
		s.Made = append(s.Made, resource)
		err := removeStaging(e.Name)
		if !e.Confirmed && errors.Is(err, fs.ErrPermission) {
			err = nil // its owner was not let in there either, so it was never made
		}
		if err == nil {
			err = d.Gone(e)
		}
		if err != nil {
			s.Remains = append(s.Remains, resource)
			s.Reason = err.Error()
		}
	}
}
