package log

import (
	"testing"
	"time"

	"brine/test/fuzztest"
)

func FuzzTemplate(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"[%(levelname)-8s] %(message)s",
		"%(asctime)s,%(msecs)03d [%(name)-17s:%(lineno)-4d][%(levelname)-8s][%(process)d] %(jid)s %(message)s",
		"%(colorlevel)s %(colormsg)s", "%%%(message)r%(created)f", "%(message", "%(x)s", "%(message)999999999s", "%(lineno)-+#0 08.3x"} {
		f.Add(s, "%H:%M:%S", "a message")
	}
	f.Add("%(asctime)s", "%Y-%m-%d %j %U %% %", "x")
	f.Fuzz(func(t *testing.T, format, times, message string) {
		tpl, err := NewTemplate(format, times)
		if err != nil {
			return
		}
		r := record{time: time.Unix(1795000000, 5e6), level: "INFO", number: 20, name: "brine.x", message: message, jid: "20261123000000000000"}
		line := tpl.appendTo(nil, &r)
		if len(line) == 0 || line[len(line)-1] != '\n' {
			t.Errorf("%q: %q", format, line)
		}
		// The width of a field is bounded.
		if most := (1 + len(format)) * (1<<12 + 8*len(message) + 64*len(times)); len(line) > most {
			t.Errorf("%q with %q makes %d bytes", format, times, len(line))
		}
	})
}
