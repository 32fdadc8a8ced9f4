package client

import "testing"

func TestBatchSize(t *testing.T) {
	for _, c := range []struct {
		text     string
		of, want int
	}{{"3", 10, 3}, {"50%", 5, 2}, {"%10", 100, 10}, {"1%", 3, 1}, {"100%", 7, 7}, {"0", 1, 0}, {"x", 1, 0}, {"-5%", 1, 0}, {"NaN%", 9, 0}, {"", 1, 0}} {
		size, ok := BatchSize(c.text)
		if ok != (c.want > 0) || ok && size(c.of) != c.want {
			t.Errorf("%q of %d: %v", c.text, c.of, ok)
		}
	}
}
