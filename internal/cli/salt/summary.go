package salt

import (
	"fmt"
	"io"
	"strings"

	"brine/internal/call/client"
)

// summary counts the results of a job.
type summary struct {
	returned, absent int
	away             []string // unreachable
	silent, failed   []string
}

func (s *summary) add(r client.Result, away bool) {
	switch {
	case away:
		s.absent++
		s.away = append(s.away, r.ID)
		return
	case r.Absent:
		s.absent++
		s.silent = append(s.silent, r.ID)
		return
	case r.Retcode != 0:
		s.failed = append(s.failed, r.ID)
	}
	s.returned++
}

func (s *summary) targeted() int { return s.returned + s.absent }

func (s *summary) print(w io.Writer, verbose bool) {
	rule := strings.Repeat("-", 43)
	fmt.Fprintf(w, "\n\n%s\nSummary\n%s\n", rule, rule)
	fmt.Fprintf(w, "# of minions targeted: %d\n", s.targeted())
	fmt.Fprintf(w, "# of minions returned: %d\n", s.returned)
	fmt.Fprintf(w, "# of minions that did not return: %d\n", s.absent)
	fmt.Fprintf(w, "# of minions with errors: %d\n", len(s.failed))
	if verbose {
		for _, l := range []struct {
			head string
			ids  []string
		}{{"Minions not connected", s.away}, {"Minions not responding", s.silent}, {"Minions with failures", s.failed}} {
			if len(l.ids) > 0 {
				fmt.Fprintf(w, "%s: %s\n", l.head, strings.Join(l.ids, " "))
			}
		}
	}
	fmt.Fprintln(w, rule)
}
