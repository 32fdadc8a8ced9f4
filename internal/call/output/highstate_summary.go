package output

import (
	"fmt"
	"strconv"
	"strings"

	"brine/internal/py/value"
)

// summary ends a minion's states with the count of each result.
func (r *stateRun) summary() {
	pal := r.p.pal
	total, digits := 0, 0
	for _, n := range r.counts {
		total += n
		digits = max(digits, len(strconv.Itoa(n)))
	}
	if r.warned > 0 {
		digits = max(digits, len(strconv.Itoa(r.warned)))
	}
	wide := len("Succeeded: ") + digits
	count := func(c color, label, n string) string {
		return pal.paint(c, fmt.Sprintf("%s: %*s", label, wide-len(label)-2, n))
	}
	rule := strings.Repeat("-", wide)
	failed, unchanged := r.counts["False"], r.counts["None"]
	good := r.counts["True"] + unchanged
	failColor := cyan
	if failed > 0 {
		failColor = red
	}
	r.lines = append(r.lines,
		pal.paint(cyan, "\nSummary for "+r.host+"\n"+rule),
		count(green, "Succeeded", strconv.Itoa(good))+r.details(unchanged),
		count(failColor, "Failed", strconv.Itoa(failed)))
	if r.p.opts.StatePercent && total > 0 {
		r.lines = append(r.lines,
			count(green, "Success %", percent(good, total)),
			count(failColor, "Failure %", percent(failed, total)))
	}
	if r.warned > 0 {
		r.lines = append(r.lines, count(lightRed, "Warnings", strconv.Itoa(r.warned)))
	}
	r.lines = append(r.lines, pal.paint(cyan, fmt.Sprintf("%s\nTotal states run: %*d", rule, wide-7, total)))
	if r.p.opts.StateProfile {
		ms, unit := r.serial+r.longest, "ms"
		if ms > 999 {
			ms, unit = ms/1000, "s"
		}
		r.lines = append(r.lines, pal.paint(cyan, fmt.Sprintf("Total run time: %*.3f %s", wide-5, ms, unit)))
	}
}

// details returns the parentheses after the number of succeeded states.
func (r *stateRun) details(unchanged int) string {
	var parts []string
	if unchanged > 0 {
		parts = append(parts, r.p.pal.paint(lightYellow, fmt.Sprintf("unchanged=%d", unchanged)))
	}
	if r.changes > 0 {
		parts = append(parts, r.p.pal.paint(green, fmt.Sprintf("changed=%d", r.changes)))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func percent(n, total int) string {
	return value.FormatFloat(round(float64(n)/float64(total)*100, 2))
}

// round follows Python's round: correct to the last decimal digit.
func round(f float64, digits int) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	if err != nil {
		return f
	}
	return r
}
