package worker

import (
	"strings"

	"rea/providers/artifact"
	"rea/providers/artifact/worker/rpm"
)

// readRPM gives the parts of an RPM package as members, under names that they do not have in the file. The payload is an
// archive in a stream, which opens in its place.
func readRPM(c *container) error {
	p, err := rpm.Open(c.src, c.src.size)
	if err != nil {
		return err
	}
	payload := "payload"
	if p.Format != "" && strings.Trim(p.Format, "abcdefghijklmnopqrstuvwxyz0123456789") == "" {
		payload += "." + p.Format
	}
	parts := []struct {
		name string
		part rpm.Part
		sum  *[32]byte
	}{
		{"lead", p.Lead, nil}, {"signature", p.Signature, nil}, {"header", p.Header, p.HeaderSHA256},
		{payload + p.Suffix(), p.Payload, p.PayloadSHA256},
	}
	err = c.each(func(yield func(*member, error) bool) {
		for _, part := range parts {
			m := &member{declared: -1, compressed: -1, method: "stored"}
			m.opaque = part.part != p.Payload // the lead begins like a package
			if part.sum != nil {
				m.digest = &artifact.Declared{SHA256: *part.sum}
			}
			c.named(m, part.name, true, nil)
			c.stored(m, part.part.Start, part.part.Size)
			if !yield(m, nil) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return c.region(artifact.RegionGap, p.Signature.End(), p.Header.Start)
}
