package jinja

import (
	"fmt"
	"strings"
	"time"
)

// layout maps directives of strftime to Go's layouts.
func layout(c byte) string {
	switch c {
	case 'a':
		return "Mon"
	case 'A':
		return "Monday"
	case 'b', 'h':
		return "Jan"
	case 'B':
		return "January"
	case 'c':
		return "Mon Jan _2 15:04:05 2006"
	case 'd':
		return "02"
	case 'D', 'x':
		return "01/02/06"
	case 'e':
		return "_2"
	case 'F':
		return "2006-01-02"
	case 'H':
		return "15"
	case 'I':
		return "03"
	case 'm':
		return "01"
	case 'M':
		return "04"
	case 'p':
		return "PM"
	case 'r':
		return "03:04:05 PM"
	case 'R':
		return "15:04"
	case 'S':
		return "05"
	case 'T', 'X':
		return "15:04:05"
	case 'y':
		return "06"
	case 'Y':
		return "2006"
	}
	return ""
}

// Strftime formats a time without zone in Python's format. Unknown directives
// stay unchanged.
func Strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		c := format[i]
		if c == '-' && i+1 < len(format) {
			i++
			b.WriteString(strings.TrimLeft(strftimeOne(t, format[i]), "0 "))
			continue
		}
		b.WriteString(strftimeOne(t, c))
	}
	return b.String()
}

func strftimeOne(t time.Time, c byte) string {
	if l := layout(c); l != "" {
		return t.Format(l)
	}
	year, week := t.ISOWeek()
	switch c {
	case '%':
		return "%"
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 's':
		return fmt.Sprint(t.Unix())
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay())
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'w':
		return fmt.Sprint(int(t.Weekday()))
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1)
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100)
	case 'G':
		return fmt.Sprint(year)
	case 'g':
		return fmt.Sprintf("%02d", year%100)
	case 'V':
		return fmt.Sprintf("%02d", week)
	case 'U':
		return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7)
	case 'W':
		return fmt.Sprintf("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
	case 'k':
		return fmt.Sprintf("%2d", t.Hour())
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1)
	case 'Z', 'z':
		return ""
	}
	return "%" + string(c)
}
