package python

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Lack is a use of a part of Salt's package that modules do not get from Brine.
type Lack struct {
	// Name is the full name, such as salt.crypt.gen_keys.
	Name string
	// Offset is the place in the file.
	Offset int
}

var (
	fromSalt = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*from[ \t]+(salt(?:\.\w+)*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)`)
	})
	importLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*(?:from|import)[ \t].*$`) })
	dottedSalt = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bsalt(?:\.[A-Za-z_]\w*){2,}`) })
	imported   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([A-Za-z]\w*)(?:[ \t]+as[ \t]+\w+)?`) })
	literals   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?s)""".*?"""|'''.*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*`)
	})
	shimWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z_]\w*`) })
)

// provided are the shim's modules by name, with the words in their source: what a module lacks is
// not among them.
var provided = sync.OnceValue(func() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for name, data := range shimContents() {
		module, ok := strings.CutSuffix(name, ".py")
		if !ok || !strings.HasPrefix(module, "salt") {
			continue
		}
		words := map[string]bool{}
		for _, w := range shimWord().FindAllString(string(data), -1) {
			words[w] = true
		}
		out[strings.ReplaceAll(strings.TrimSuffix(module, "/__init__"), "/", ".")] = words
	}
	return out
})

// saltNames are the public names of the modules of Salt's package.
var saltNames = sync.OnceValue(func() map[string][]string {
	data, err := shimFiles.ReadFile("shim/names.txt")
	if err != nil {
		panic(err) // it is embedded
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		module, names, _ := strings.Cut(strings.TrimSpace(line), ":")
		out[module] = strings.Fields(names)
	}
	return out
})

// Code returns the source of a Python file with blanks in place of comments and documentation.
func Code(text []byte) []byte {
	return literals().ReplaceAllFunc(text, func(m []byte) []byte {
		if m[0] != '#' && len(m) < 6 || m[0] != '#' && string(m[:3]) != `"""` && string(m[:3]) != "'''" {
			return m
		}
		blank := slices.Clone(m)
		for i, b := range blank {
			if b != '\n' {
				blank[i] = ' '
			}
		}
		return blank
	})
}

// Lacking returns the parts of Salt's package that a Python file uses and Brine does not provide,
// each once.
func Lacking(text []byte) []Lack {
	code := Code(text)
	var out []Lack
	add := func(name string, offset int) {
		if !slices.ContainsFunc(out, func(l Lack) bool { return l.Name == name }) {
			out = append(out, Lack{name, offset})
		}
	}
	for _, m := range fromSalt().FindAllSubmatchIndex(code, -1) {
		module := string(code[m[2]:m[3]])
		for _, name := range imported().FindAllStringSubmatch(string(code[m[4]:m[5]]), -1) {
			if lacks(module, name[1]) {
				add(module+"."+name[1], m[2])
			}
		}
	}
	code = importLine().ReplaceAllFunc(code, func(m []byte) []byte { return slices.Repeat([]byte(" "), len(m)) })
	for _, m := range dottedSalt().FindAllIndex(code, -1) {
		parts := strings.Split(string(code[m[0]:m[1]]), ".")
		n := len(parts) - 1
		for n > 1 && !isModule(strings.Join(parts[:n], ".")) {
			n--
		}
		if module := strings.Join(parts[:n], "."); lacks(module, parts[n]) {
			add(module+"."+parts[n], m[0])
		}
	}
	return out
}

func isModule(name string) bool {
	_, known := saltNames()[name]
	return known || provided()[name] != nil
}

// lacks reports whether a name of a module of Salt is one that Brine does not provide.
func lacks(module, name string) bool {
	if !slices.Contains(saltNames()[module], name) {
		return false // a module that is imported, or a name that Salt has not either
	}
	if strings.HasPrefix(module, "salt.utils.win") {
		return false // for Windows, and minions of Brine run on Linux
	}
	return !provided()[module][name]
}
