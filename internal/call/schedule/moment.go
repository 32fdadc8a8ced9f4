package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Moment is a time as users write it, with optional parts: "5pm" recurs each day, "Monday 5:00pm"
// each week, "2026-11-22 17:00" happens once.
type Moment struct {
	year, day            int // 0: open
	month                time.Month
	weekday              time.Weekday
	hasWeekday           bool
	hour, minute, second int
	zone                 *time.Location // nil: local
}

// ParseMoment parses dates (2026-11-22, 11/22/2026, 22 Nov 2026, Nov 22), days of the week and
// times (17:00, 5:00pm, 5pm), in any unambiguous order. A missing time means midnight.
func ParseMoment(text string) (Moment, error) {
	var m Moment
	bad := func() (Moment, error) {
		return Moment{}, fmt.Errorf("%q is not a date or a time such as 2026-11-22 17:00, Monday 5:00pm or 5pm", text)
	}
	s := strings.ToLower(strings.TrimSpace(text))
	if s == "" {
		return bad()
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, strings.ToUpper(s), time.Local); err == nil {
			m.year, m.month, m.day = t.Date()
			m.hour, m.minute, m.second = t.Clock()
			m.zone = t.Location()
			return m, nil
		}
	}
	seenTime := false
	numbers := []int{} // day of the month, year
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		switch {
		case w == "at" || w == "on" || w == "of":
		case w == "am" || w == "pm":
			if !seenTime && len(numbers) > 0 { // "5 pm"
				m.hour, numbers, seenTime = numbers[len(numbers)-1], numbers[:len(numbers)-1], true
			}
			if !seenTime || !m.meridiem(w) {
				return bad()
			}
		case m.clock(w):
			if seenTime {
				return bad()
			}
			seenTime = true
		case m.name(w), m.date(w):
		case w == "utc" || w == "z" || w == "gmt":
			m.zone = time.UTC
		default:
			n, err := strconv.Atoi(strings.TrimRight(w, "stndrh"))
			if err != nil || n < 1 || n > 9999 {
				return bad()
			}
			numbers = append(numbers, n)
		}
	}
	for _, n := range numbers {
		switch {
		case n > 31 && m.year == 0:
			m.year = n
		case n <= 31 && m.day == 0 && m.month != 0:
			m.day = n
		default:
			return bad()
		}
	}
	if m.month != 0 && m.day == 0 || m.year != 0 && m.month == 0 || !m.valid() {
		return bad()
	}
	return m, nil
}

func (m *Moment) valid() bool {
	if m.month == 0 {
		return true
	}
	y := m.year
	if y == 0 {
		y = 2024 // has a 29 February
	}
	return time.Date(y, m.month, m.day, 0, 0, 0, 0, time.UTC).Day() == m.day
}

// clock parses 17:00, 17:00:00, 5:00pm and 5pm.
func (m *Moment) clock(w string) bool {
	word := ""
	if t := strings.TrimSuffix(strings.TrimSuffix(w, "am"), "pm"); t != w {
		word, w = w[len(t):], t
	} else if !strings.Contains(w, ":") {
		return false
	}
	parts := strings.Split(w, ":")
	if len(parts) > 3 {
		return false
	}
	var n [3]int
	for i, p := range parts {
		p, _, _ = strings.Cut(p, ".")
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 || v > 59 || i == 0 && v > 23 {
			return false
		}
		n[i] = v
	}
	m.hour, m.minute, m.second = n[0], n[1], n[2]
	return word == "" || m.meridiem(word)
}

func (m *Moment) meridiem(word string) bool {
	if m.hour < 1 || m.hour > 12 {
		return false
	}
	m.hour %= 12
	if word == "pm" {
		m.hour += 12
	}
	return true
}

// name parses names of days and months, full or abbreviated to three letters or more.
func (m *Moment) name(w string) bool {
	w = strings.TrimSuffix(w, ".")
	if len(w) < 3 {
		return false
	}
	for d := time.Sunday; d <= time.Saturday; d++ {
		if strings.HasPrefix(strings.ToLower(d.String()), w) {
			m.weekday, m.hasWeekday = d, true
			return true
		}
	}
	for mo := time.January; mo <= time.December; mo++ {
		if strings.HasPrefix(strings.ToLower(mo.String()), w) {
			m.month = mo
			return true
		}
	}
	return false
}

// date parses 2026-11-22, 2026/11/22 and 11/22/2026.
func (m *Moment) date(w string) bool {
	for _, layout := range []string{"2006-1-2", "2006/1/2", "1/2/2006", "1-2-2006", "20060102"} {
		if t, err := time.Parse(layout, w); err == nil {
			m.year, m.month, m.day = t.Date()
			return true
		}
	}
	return false
}

// On returns the moment on the day of now: missing parts are taken from that day, and a day of the
// week is the next one.
func (m Moment) On(now time.Time) time.Time {
	zone := now.Location()
	if m.zone != nil {
		zone = m.zone
	}
	y, mo, d := now.In(zone).Date()
	if m.month != 0 {
		mo, d = m.month, m.day
	}
	if m.year != 0 {
		y = m.year
	}
	t := time.Date(y, mo, d, m.hour, m.minute, m.second, 0, zone)
	if m.hasWeekday && m.month == 0 {
		t = time.Date(y, mo, d+(int(m.weekday)-int(t.Weekday())+7)%7, m.hour, m.minute, m.second, 0, zone)
	}
	return t
}

// Next returns the first such time after t, or the zero time.
func (m Moment) Next(t time.Time) time.Time {
	for _, day := range []time.Time{t, t.AddDate(0, 0, 1)} { // today, then from tomorrow
		if next := m.On(day); next.After(t) {
			return next
		}
	}
	if m.month != 0 && m.year == 0 {
		for y := range 8 { // 29 February
			next := m.On(time.Date(t.Year()+y+1, time.January, 1, 0, 0, 0, 0, t.Location()))
			if next.Month() == m.month && next.After(t) {
				return next
			}
		}
	}
	return time.Time{}
}

// ParseFormat parses a time in a format of Python's strptime.
func ParseFormat(text, format string) (time.Time, error) {
	layout, err := goLayout(format)
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.ParseInLocation(layout, text, time.Local)
	if err != nil {
		return t, fmt.Errorf("%q does not match the format %q", text, format)
	}
	return t, nil
}

// DefaultFormat is the format of times unless another is given.
const DefaultFormat = "%Y-%m-%dT%H:%M:%S"

// Format formats a time like Python's strftime, in DefaultFormat if format is invalid.
func Format(t time.Time, format string) string {
	layout, err := goLayout(format)
	if err != nil {
		layout, _ = goLayout(DefaultFormat)
	}
	return t.Format(layout)
}

func goLayout(format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		if i == len(format) {
			return "", fmt.Errorf("the format %q ends with a percent sign", format)
		}
		switch format[i] {
		case 'Y':
			b.WriteString("2006")
		case 'y':
			b.WriteString("06")
		case 'm':
			b.WriteString("01")
		case 'd':
			b.WriteString("02")
		case 'H':
			b.WriteString("15")
		case 'I':
			b.WriteString("03")
		case 'M':
			b.WriteString("04")
		case 'S':
			b.WriteString("05")
		case 'f':
			b.WriteString("000000")
		case 'p':
			b.WriteString("PM")
		case 'b':
			b.WriteString("Jan")
		case 'B':
			b.WriteString("January")
		case 'a':
			b.WriteString("Mon")
		case 'A':
			b.WriteString("Monday")
		case 'j':
			b.WriteString("002")
		case 'z':
			b.WriteString("-0700")
		case 'Z':
			b.WriteString("MST")
		case 'T':
			b.WriteString("15:04:05")
		case 'F':
			b.WriteString("2006-01-02")
		case '%':
			b.WriteByte('%')
		default:
			return "", fmt.Errorf("%%%c in %q is not known", format[i], format)
		}
	}
	return b.String(), nil
}
