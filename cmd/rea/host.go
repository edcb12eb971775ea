package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rea/evidence/fault"
	"rea/evidence/store"
	"rea/images"
	"rea/orchestrator"
	"rea/orchestrator/clients"
	"rea/orchestrator/doctor"
	"rea/orchestrator/report"
	"rea/sandbox/journal"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor [PATH]", Short: "Examine this host: what runs need, what is missing, and how to get it", Args: cobra.MaximumNArgs(1),
		Long: `Doctor says whether contained runs can start here and how well they are contained: engine and runtimes with their
versions held against published escapes, cgroups, privileges, images, store, and what MCP clients start. With PATH it also checks whether that
target can be opened. It changes nothing, and exits with 4 where something keeps rea from working.`,
		RunE: a.work(a.doctor),
	}
}

func (a *app) doctor(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
	o := doctor.Options{Version: version}
	if u, err := clientUser(); err == nil { // without a home there are no clients
		o.Registrations = clients.Inspect(u, a.registered())
	}
	if len(args) == 1 {
		path, err := absolute(args[0])
		if err != nil {
			return answer{}, err
		}
		o.Target = path
	}
	examined, err := doctor.Examine(ctx, h, o)
	if err != nil {
		return answer{}, err
	}
	out := result(examined, examined.WriteText)
	if !examined.Healthy {
		out.code = fault.ExitNotDone
	}
	return out, nil
}

func (a *app) sandboxCommand() *cobra.Command {
	return group("sandbox", "What runs have made on this host",
		&cobra.Command{Use: "list", Short: "List the processes of rea and what each has made and not removed yet", Args: cobra.NoArgs, RunE: a.work(a.owners)},
		&cobra.Command{Use: "sweep", Short: "Remove what dead processes left, and only that", Args: cobra.NoArgs, RunE: a.work(a.sweep)},
	)
}

// owner is one process of rea in a listing.
type owner struct {
	journal.Record
	Alive   bool    `json:"alive"`
	Foreign bool    `json:"foreign"` // of another machine: whether it lives is not known
	Problem string  `json:"problem"`
	Entries []entry `json:"entries"`
}

// entry is one resource of an owner.
type entry struct {
	Run       string    `json:"run"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	At        time.Time `json:"at"`
	Confirmed bool      `json:"confirmed"` // it was seen to exist
}

func (a *app) owners(_ context.Context, h *orchestrator.Host, _ []string) (answer, error) {
	infos, err := h.Owners()
	if err != nil {
		return answer{}, err
	}
	list := []owner{}
	for _, i := range infos {
		o := owner{Record: i.Record, Alive: i.Alive, Foreign: i.Foreign, Problem: i.Problem, Entries: []entry{}}
		for _, e := range i.Entries {
			o.Entries = append(o.Entries, entry{e.Run, e.Kind, e.Name, e.At, e.Confirmed})
		}
		list = append(list, o)
	}
	return result(map[string]any{"owners": list}, func(w io.Writer, style report.Style) error { return writeOwners(w, style, list) }), nil
}

func writeOwners(w io.Writer, style report.Style, list []owner) error {
	lines := textLines{w: w}
	if len(list) == 0 {
		lines.add("No process of rea has made anything that is still there.")
	}
	for _, o := range list {
		state := style.Good("alive")
		switch {
		case o.Foreign:
			state = style.Warn("of another machine")
		case !o.Alive:
			state = style.Bad("dead")
		}
		lines.add("%s  process %d of uid %d, since %s, %s", o.Owner, o.PID, o.UID, o.At.Format(time.RFC3339), state)
		if o.Problem != "" {
			lines.add("    %s", report.Printable(o.Problem))
		}
		for _, e := range o.Entries {
			lines.add("    %-20s %s", report.Printable(e.Kind), report.Printable(e.Name))
		}
	}
	return lines.err
}

func (a *app) sweep(ctx context.Context, h *orchestrator.Host, _ []string) (answer, error) {
	swept, err := h.Sweep(ctx)
	if len(swept) == 0 && err != nil {
		return answer{}, err
	}
	if swept == nil {
		swept = []orchestrator.Swept{}
	}
	problem := "" // what kept an owner from being swept; what was swept beside it is told all the same
	if err != nil {
		problem = fault.From(err).Message
	}
	out := result(map[string]any{"swept": swept, "problem": problem}, func(w io.Writer, style report.Style) error {
		return writeSwept(w, style, swept, problem)
	})
	if problem != "" || slices.ContainsFunc(swept, func(s orchestrator.Swept) bool { return len(s.Remains) > 0 }) {
		out.code = fault.ExitNotDone
	}
	return out, nil
}

func writeSwept(w io.Writer, style report.Style, swept []orchestrator.Swept, problem string) error {
	lines := textLines{w: w}
	if len(swept) == 0 {
		lines.add("Dead processes left nothing.")
	}
	for _, s := range swept {
		lines.add("%s  %d removed, %d remain", s.Owner, len(s.Made)-len(s.Remains), len(s.Remains))
		for _, r := range s.Remains {
			lines.add("    %s %-18s %s", style.Bad("remains"), report.Printable(r.Kind), report.Printable(r.Name))
		}
		if s.Damage != "" {
			lines.add("    %s; this host was searched for what it may have named", report.Printable(s.Damage))
		}
		if s.Reason != "" {
			lines.add("    %s", report.Printable(s.Reason))
		}
		if s.Held > 0 {
			lines.add("    %d creates were never answered; they are looked for again for ten minutes", s.Held)
		}
	}
	if problem != "" {
		lines.add("%s", style.Bad(report.Printable(problem)))
	}
	return lines.err
}

func (a *app) imagesCommand() *cobra.Command {
	return group("images", "The root file systems that runs start from",
		&cobra.Command{Use: "list", Short: "List the images of this build and where each is present", Args: cobra.NoArgs, RunE: a.work(a.imageList)},
		&cobra.Command{Use: "build [NAME]...", Short: "Make images ready before their first run; all of them without a name", RunE: a.work(a.imageBuild)},
	)
}

func (a *app) imageList(ctx context.Context, h *orchestrator.Host, _ []string) (answer, error) {
	infos, err := h.Images(ctx)
	return imageAnswer(infos), err
}

func (a *app) imageBuild(ctx context.Context, h *orchestrator.Host, names []string) (answer, error) {
	if len(names) == 0 {
		names = images.Names()
	}
	var built []images.Info
	for _, name := range names {
		info, err := h.BuildImage(ctx, name)
		if err != nil {
			return answer{}, err
		}
		built = append(built, info)
	}
	return imageAnswer(built), nil
}

func imageAnswer(infos []images.Info) answer {
	if infos == nil {
		infos = []images.Info{}
	}
	return result(map[string]any{"images": infos}, func(w io.Writer, _ report.Style) error {
		lines := textLines{w: w}
		for _, i := range infos {
			where := []string{}
			if i.InEngine != nil && *i.InEngine {
				where = append(where, "in the engine")
			}
			if i.Unpacked {
				where = append(where, "unpacked")
			}
			if len(where) == 0 {
				where = append(where, "made at the first run")
			}
			lines.add("%-8s %s  %s  %s  %s", i.Name, i.Reference, i.Digest, report.Size(i.Size), strings.Join(where, ", "))
		}
		return lines.err
	})
}

func (a *app) gcCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "gc", Short: "Bring the store of Evidence back within its budget", Args: cobra.NoArgs,
		Long: `Gc removes what dead processes left in the store, content that no record names, and the oldest records beyond the
budget. What a living process holds is never removed, nor anything younger than two hours.

With --verify it first reads the whole store, and removes content that is not what its digest says and the records
that stand on it.`,
	}
	dry := cmd.Flags().Bool("dry-run", false, "remove nothing, and say what would go")
	verify := cmd.Flags().Bool("verify", false, "read the whole store too, and remove what is damaged")
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, _ []string) (answer, error) {
		return a.gc(ctx, h, *dry, *verify)
	})
	return cmd
}

// collected is what a collection did, or would do.
type collected struct {
	store.Report `json:",inline"`
	Verification *store.Verification `json:"verification"` // null where it was not asked for
}

func (a *app) gc(ctx context.Context, h *orchestrator.Host, dry, verify bool) (answer, error) {
	st, err := h.Store()
	if err != nil {
		return answer{}, err
	}
	var done collected
	if verify {
		check := st.Repair
		if dry {
			check = st.Verify
		}
		v, err := check(ctx)
		if err != nil {
			return answer{}, err
		}
		done.Verification = &v
	}
	if done.Report, err = st.GC(ctx, dry); err != nil {
		return answer{}, err
	}
	return result(done, func(w io.Writer, _ report.Style) error { return writeCollected(w, done) }), nil
}

func writeCollected(w io.Writer, done collected) error {
	lines := textLines{w: w}
	did := "Removed"
	if done.DryRun {
		did = "Would remove"
	}
	if v := done.Verification; v != nil {
		lines.add("Read %d blobs and %d records; %d of them are damaged.", v.Blobs, v.Records, len(v.Damaged))
		for _, d := range v.Damaged {
			lines.add("%s %s %s: %s", did, d.Kind, report.Printable(d.Name), report.Printable(d.Reason))
		}
	}
	if done.Busy {
		lines.add("Another collection is running; nothing was collected.")
		return lines.err
	}
	lines.add("%s %s: %d records, %d blobs, %d temporary files, %d dead leases.", did, report.Size(done.Freed), done.Records, done.Blobs, done.Temps, done.Leases)
	lines.add("The store holds %s of at most %s; %d records are in use; %s are free on its file system.",
		report.Size(done.After), report.Size(done.Ceiling), done.Leased, report.Size(done.Free))
	return lines.err
}

// versionInfo says which build this is.
type versionInfo struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Go           string `json:"go"`
	Platform     string `json:"platform"`
	WorkerSHA256 string `json:"worker_sha256"` // of the program that runs inside containers, "" in a build without it
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Say which build this is", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		if err := a.chooseFormat(); err != nil {
			return err
		}
		a.begun = true
		v := versionInfo{Name: name, Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		worker := "without a worker inside"
		if _, sha256, err := images.Worker(); err == nil {
			v.WorkerSHA256, worker = sha256, "worker sha256 "+sha256
		}
		return a.answer(result(v, func(w io.Writer, _ report.Style) error {
			_, err := fmt.Fprintf(w, "%s %s (%s, %s, %s)\n", v.Name, v.Version, v.Go, v.Platform, worker)
			return err
		}))
	}}
}

// textLines writes lines until one fails.
type textLines struct {
	w   io.Writer
	err error
}

func (l *textLines) add(format string, args ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.w, format+"\n", args...)
	}
}
