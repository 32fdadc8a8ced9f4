// Command scale computes the requirements of fleets that do not fit on one machine from the cost of messages measured on
// this one.
//
//	go run ./bench/scale -measure   takes the costs from docs/performance/report.json and measures those that are not in it;
//	                                with -report A,B where a part was measured by itself
//	go run ./bench/scale            prints the tables of docs/scale.md
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"brine/bench/report"
)

func main() {
	measure := flag.Bool("measure", false, "measure the costs and write them to the file -costs")
	from := flag.String("report", "docs/performance/report.json",
		"report of make bench; several, separated by commas, if parts were measured by themselves: the first that has a figure counts")
	costs := flag.String("costs", "docs/performance/scale.json", "costs of a message")
	flag.Parse()
	if err := run(*measure, *from, *costs); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(measure bool, from, costs string) error {
	if !measure {
		c, err := readCosts(costs)
		if err != nil {
			return err
		}
		_, err = fmt.Print(Tables(c))
		return err
	}
	var reps []*report.Report
	for path := range strings.SplitSeq(from, ",") {
		rep, err := readReport(path)
		if err != nil {
			return err
		}
		reps = append(reps, rep)
	}
	c, err := Gather(reps...)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(costs, append(b, '\n'), 0o644)
}

func readReport(path string) (*report.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rep, err := report.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rep, nil
}
