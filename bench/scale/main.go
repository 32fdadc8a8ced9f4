// Command scale reckons what fleets need that do not fit on one machine, from
// what a message costs a master on this one.
//
//	go run ./bench/scale -measure   takes the costs from docs/performance/report.json, and measures those that are not in it
//	go run ./bench/scale            prints the tables of docs/scale.md
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"brine/bench/report"
)

func main() {
	measure := flag.Bool("measure", false, "measure the costs and write them to the file -costs")
	from := flag.String("report", "docs/performance/report.json", "report of make bench")
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
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	rep, err := report.Read(f)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	c, err := Gather(rep)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(costs, append(b, '\n'), 0o644)
}
