package target

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

const (
	// maxWords bounds a compound with its nodegroups expanded.
	maxWords = 20_000
	// maxDepth bounds nested parentheses and nodegroups.
	maxDepth = 100
)

// compound parses a string, split at blanks, or a list of words, which may
// contain blanks.
func (p *parser) compound(expr any) (node, error) {
	switch x := value.From(expr).(type) {
	case string:
		return p.compoundWords(strings.Fields(x))
	case []byte:
		return p.compoundWords(strings.Fields(string(x)))
	case *value.List:
		return p.compoundWords(texts(x.Items))
	case value.Tuple:
		return p.compoundWords(texts(x))
	default:
		return nil, salt.Errorf(salt.Invalid, "a compound target must be a string or a list, not %s", value.TypeName(x))
	}
}

func (p *parser) compoundWords(words []string) (node, error) {
	p.words += len(words)
	p.depth++
	defer func() { p.depth-- }()
	if p.words > maxWords || p.depth > maxDepth {
		return nil, salt.Errorf(salt.Invalid, "compound target is too large: more than %d words or %d levels", maxWords, maxDepth)
	}
	c := &compound{parser: p, words: words}
	n, err := c.or()
	if err == nil && c.pos < len(c.words) {
		err = c.unexpected()
	}
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "cannot read the compound target %q: %w", strings.Join(words, " "), err)
	}
	return n, nil
}

// CheckParentheses returns an error for a parenthesis that is part of a word in a compound
// target. As in Salt, it is read as a character of a minion id, which is rarely intended.
func CheckParentheses(expr string) error {
	for word := range strings.FieldsSeq(expr) {
		if len(word) > 1 && !strings.Contains(word, "@") && (strings.HasPrefix(word, "(") || strings.HasSuffix(word, ")")) {
			return salt.Errorf(salt.Invalid, "a parenthesis needs a blank on both sides, and %q has none", word)
		}
	}
	return nil
}

// compound is the parser state of a list of words. Or binds weakest, then and,
// then not; "a not b" means "a and not b".
type compound struct {
	*parser
	words []string
	pos   int
}

func (c *compound) peek() string {
	if c.pos < len(c.words) {
		return c.words[c.pos]
	}
	return ""
}

func (c *compound) accept(word string) bool {
	if c.pos < len(c.words) && c.words[c.pos] == word {
		c.pos++
		return true
	}
	return false
}

func (c *compound) unexpected() error {
	if c.pos >= len(c.words) {
		if c.pos == 0 {
			return fmt.Errorf("it is empty")
		}
		return fmt.Errorf("it ends after %q", c.words[c.pos-1])
	}
	if c.pos == 0 {
		return fmt.Errorf("it cannot begin with %q", c.words[0])
	}
	return fmt.Errorf("%q cannot follow %q", c.words[c.pos], c.words[c.pos-1])
}

func (c *compound) or() (node, error) {
	n, err := c.and()
	if err != nil || c.peek() != "or" {
		return n, err
	}
	all := orNode{n}
	for c.accept("or") {
		if n, err = c.and(); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

func (c *compound) and() (node, error) {
	n, err := c.not()
	if err != nil {
		return nil, err
	}
	all := andNode{n}
	for c.accept("and") || c.peek() == "not" {
		if n, err = c.not(); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	if len(all) == 1 {
		return n, nil
	}
	return all, nil
}

func (c *compound) not() (node, error) {
	if !c.accept("not") {
		return c.atom()
	}
	n, err := c.atom()
	if err != nil {
		return nil, err
	}
	return notNode{n}, nil
}

func (c *compound) atom() (node, error) {
	word := c.peek()
	switch {
	case c.pos >= len(c.words) || isOperator(word) && word != "(":
		return nil, c.unexpected()
	case word == "(":
		return c.parenthesis()
	}
	c.pos++
	return c.word(word)
}

func (c *compound) parenthesis() (node, error) {
	c.depth++
	defer func() { c.depth-- }()
	if c.depth > maxDepth {
		return nil, fmt.Errorf("more than %d nested parentheses", maxDepth)
	}
	c.pos++
	n, err := c.or()
	if err != nil {
		return nil, err
	}
	if !c.accept(")") {
		if c.pos >= len(c.words) {
			return nil, fmt.Errorf("a closing parenthesis is missing")
		}
		return nil, c.unexpected()
	}
	return n, nil
}

func isOperator(word string) bool {
	switch word {
	case "and", "or", "not", "(", ")":
		return true
	}
	return false
}

// engines are the letters before @.
var engines = map[byte]string{
	'G': "grain", 'P': "grain_pcre", 'I': "pillar", 'J': "pillar_pcre",
	'L': "list", 'S': "ipcidr", 'E': "pcre", 'N': "nodegroup", 'R': "range",
}

// word parses one term. A data term without a delimiter, or an invalid address,
// matches nothing; the rest of the target still counts, as in Salt.
func (c *compound) word(word string) (node, error) {
	engine, delimiter, pattern := splitWord(word)
	switch engine {
	case 0:
		return newGlobNode(word), nil
	case 'L':
		return newListNode(strings.Split(pattern, ",")), nil
	case 'N':
		words, err := c.groups.Expand(pattern)
		if err != nil {
			return nil, err
		}
		return c.compoundWords(words)
	case 'R':
		return nil, fmt.Errorf("%q needs a range server, which is not supported", word)
	case 'E':
		return c.simple("pcre", pattern, "")
	}
	typ := engines[engine]
	if c.exact && (engine == 'I' || engine == 'J') {
		typ = "pillar_exact"
	}
	n, err := c.simple(typ, pattern, delimiter)
	if err != nil && typ != "grain_pcre" && typ != "pillar_pcre" {
		return never{}, nil
	}
	return n, err
}

// splitWord splits a term into its engine letter, its own delimiter and the
// rest. engine is 0 for a glob.
func splitWord(word string) (engine byte, delimiter, pattern string) {
	if len(word) < 3 || engines[word[0]] == "" {
		return 0, "", word
	}
	rest := word[1:]
	if strings.IndexByte("GPIJ", word[0]) >= 0 {
		_, n := utf8.DecodeRuneInString(rest)
		if after, ok := strings.CutPrefix(rest[n:], "@"); ok && after != "" {
			return word[0], rest[:n], after
		}
	}
	if after, ok := strings.CutPrefix(rest, "@"); ok && after != "" {
		return word[0], "", after
	}
	return 0, "", word
}

// Nodegroups are the named compounds of the configuration: each is a string or
// a list of words.
type Nodegroups map[string]any

// Expand returns the words of the compound of a nodegroup, in the form sent to
// minions: nested nodegroups are replaced by their words in parentheses, and a
// group of bare ids becomes a list. It fails for a group that is unknown or
// contains itself.
func (g Nodegroups) Expand(name string) ([]string, error) {
	e := &expansion{groups: g}
	words, nested, err := e.expand(name)
	if err != nil {
		return nil, err
	}
	if !nested {
		return asTerm(words), nil
	}
	return parenthesise(words), nil
}

// UnknownGroupError reports a nodegroup that is not defined. Its kind is NotFound.
type UnknownGroupError struct{ Group string }

func (e *UnknownGroupError) Error() string {
	return fmt.Sprintf("nodegroup %q is not defined", e.Group)
}

// Unwrap returns the kind of the error.
func (e *UnknownGroupError) Unwrap() error { return salt.Errorf(salt.NotFound, "unknown nodegroup") }

// CircularError reports a nodegroup that contains itself.
type CircularError struct {
	Group string
	Path  []string // the groups, outermost first
}

func (e *CircularError) Error() string {
	return fmt.Sprintf("nodegroup %q contains itself: %s", e.Group, strings.Join(e.Path, " > "))
}

// Unwrap returns the kind of the error.
func (e *CircularError) Unwrap() error { return salt.Errorf(salt.Invalid, "circular nodegroup") }

type expansion struct {
	groups Nodegroups
	open   []string
	words  int
}

func (e *expansion) expand(name string) (words []string, nested bool, err error) {
	if slices.Contains(e.open, name) {
		return nil, false, &CircularError{Group: name, Path: append(slices.Clone(e.open), name)}
	}
	raw, err := e.groups.words(name)
	if err != nil {
		return nil, false, err
	}
	if e.words += len(raw); e.words > maxWords || len(e.open) > maxDepth {
		return nil, false, salt.Errorf(salt.Invalid, "nodegroup %q is too large: more than %d words or %d levels", name, maxWords, maxDepth)
	}
	e.open = append(e.open, name)
	defer func() { e.open = e.open[:len(e.open)-1] }()
	for _, w := range raw {
		inner, ok := strings.CutPrefix(w, "N@")
		if !ok || inner == "" {
			words = append(words, w)
			continue
		}
		sub, deeper, err := e.expand(inner)
		if err != nil {
			return nil, false, err
		}
		nested = true
		if !deeper {
			if term := asTerm(sub); len(term) == 1 && len(sub) >= 1 && term[0] != sub[0] {
				words = append(words, term[0])
				continue
			}
		}
		words = append(words, parenthesise(sub)...)
	}
	return words, nested, nil
}

func (g Nodegroups) words(name string) ([]string, error) {
	def, ok := g[name]
	if !ok {
		return nil, &UnknownGroupError{name}
	}
	var words []string
	switch x := value.From(def).(type) {
	case string:
		words = strings.Fields(x)
	case *value.List:
		words = texts(x.Items)
	case value.Tuple:
		words = texts(x)
	default:
		return nil, salt.Errorf(salt.Invalid, "nodegroup %q must be a string or a list, not %s", name, value.TypeName(x))
	}
	if len(words) == 0 {
		return nil, salt.Errorf(salt.Invalid, "nodegroup %q is empty", name)
	}
	return words, nil
}

func parenthesise(words []string) []string {
	return append(append([]string{"("}, words...), ")")
}

var prefixed = regexp.MustCompile(`^[A-Z].?@`)

// asTerm joins words that are neither operators, globs nor prefixed terms into one term: a
// regular expression if they look like one, else a list.
func asTerm(words []string) []string {
	letter := "L@"
	for _, w := range words {
		if isOperator(w) || strings.Contains(w, "*") || prefixed.MatchString(w) {
			return words
		}
		if strings.ContainsAny(w, `([{\?}])`) {
			letter = "E@"
		}
	}
	return []string{letter + strings.Join(words, ",")}
}
