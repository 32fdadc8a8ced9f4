package packages

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

var releasePart = regexp.MustCompile(`[0-9]+|[a-z]+`)

// ComparePython compares versions of Python packages, such as 1.2, 1.2rc1 and
// 1.10, part by part. A word makes a version older than the one without, and
// trailing zeros are ignored.
func ComparePython(a, b string) int {
	x, y := releasePart.FindAllString(a, -1), releasePart.FindAllString(b, -1)
	for i := range max(len(x), len(y)) {
		m, n := "0", "0"
		if i < len(x) {
			m = x[i]
		}
		if i < len(y) {
			n = y[i]
		}
		if c := comparePart(m, n); c != 0 {
			return c
		}
	}
	return 0
}

func comparePart(x, y string) int {
	m, err1 := strconv.Atoi(x)
	n, err2 := strconv.Atoi(y)
	switch {
	case err1 == nil && err2 == nil:
		return m - n
	case err1 == nil:
		return wordFirst(y, m)
	case err2 == nil:
		return -wordFirst(x, n)
	}
	return cmp.Or(compareBool(x == "post", y == "post"), compareBool(y == "dev", x == "dev"), strings.Compare(x, y))
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// wordFirst compares a version that continues with a number with one that
// continues with a word: post releases come after 0, or nothing; a, b, rc and
// dev before.
func wordFirst(word string, number int) int {
	if word == "post" && number == 0 {
		return -1
	}
	return 1
}
