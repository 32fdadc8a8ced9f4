package federation

import (
	"strings"

	"brine/internal/base/target"
	"brine/internal/net/sealed"
	"brine/internal/py/value"
)

// sitePrefix begins a word of a compound target that selects sites by a glob.
const sitePrefix = "site:"

// The words that replace those of sites.
const (
	wordAll  = "*"
	wordNone = "E@^$" // no id is empty
)

// NamesSites reports whether a target selects sites.
func NamesSites(typ string, tgt any) bool {
	for _, w := range compoundWords(typ, tgt) {
		if strings.HasPrefix(w, sitePrefix) {
			return true
		}
	}
	return false
}

// SiteTarget returns a target as a site resolves it: words that select sites are replaced by ones that
// match all or none. The site "" is the hub itself. possible is false if no minion of the site can
// match.
func SiteTarget(site, typ string, tgt any) (siteType string, siteTgt any, possible bool) {
	words := compoundWords(typ, tgt)
	changed := false
	for i, w := range words {
		pattern, ok := strings.CutPrefix(w, sitePrefix)
		if !ok {
			continue
		}
		changed = true
		if site != "" && target.ParseGlob(pattern).Match(site) {
			words[i] = wordAll
		} else {
			words[i] = wordNone
		}
	}
	if !changed {
		return typ, tgt, true
	}
	p := &possibility{words: words}
	possible = p.or() != impossible
	if _, ok := tgt.(*value.List); ok {
		return typ, value.Strings(words), possible
	}
	return typ, strings.Join(words, " "), possible
}

// compoundWords returns the words of a compound target, nil for others.
func compoundWords(typ string, tgt any) []string {
	if typ != "compound" {
		return nil
	}
	if l, ok := tgt.(*value.List); ok {
		return value.OnlyTexts(l)
	}
	text, _ := tgt.(string)
	return strings.Fields(text)
}

// chance is whether minions may match a part of a target.
type chance uint8

const (
	impossible chance = iota
	perhaps
	certain
)

// possibility reads a compound target whose words about minions are unknown. What it cannot read
// counts as perhaps: the site reports the error.
type possibility struct {
	words []string
	depth int
}

func (p *possibility) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *possibility) next() string {
	w := p.peek()
	if len(p.words) > 0 {
		p.words = p.words[1:]
	}
	return w
}

func (p *possibility) or() chance {
	c := p.and()
	for p.peek() == "or" {
		p.next()
		c = max(c, p.and())
	}
	return c
}

func (p *possibility) and() chance {
	c := p.not()
	for len(p.words) > 0 && p.peek() != "or" && p.peek() != ")" {
		if p.peek() == "and" {
			p.next()
		}
		c = min(c, p.not())
	}
	return c
}

// maxParentheses bounds the nesting of a target that is read here.
const maxParentheses = 100

func (p *possibility) not() chance {
	switch w := p.next(); w {
	case "not":
		if p.depth++; p.depth > maxParentheses {
			return perhaps
		}
		return certain - p.not()
	case "(":
		if p.depth++; p.depth > maxParentheses {
			return perhaps
		}
		c := p.or()
		if p.peek() == ")" {
			p.next()
		}
		return c
	case wordAll:
		return certain
	case wordNone:
		return impossible
	}
	return perhaps
}

// splitName splits the name that a hub has for a minion whose id another site owns.
func splitName(name string) (id, site string, ok bool) {
	i := strings.LastIndexByte(name, '@')
	if i <= 0 || sealed.CheckName(name[i+1:]) != nil {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}
