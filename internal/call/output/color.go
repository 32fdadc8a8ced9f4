package output

// color is a colour name as used in themes.
type color string

const (
	red          color = "RED"
	lightRed     color = "LIGHT_RED"
	green        color = "GREEN"
	lightGreen   color = "LIGHT_GREEN"
	lightYellow  color = "LIGHT_YELLOW"
	blue         color = "BLUE"
	lightBlue    color = "LIGHT_BLUE"
	magenta      color = "MAGENTA"
	lightMagenta color = "LIGHT_MAGENTA"
	cyan         color = "CYAN"
	darkGray     color = "DARK_GRAY"
	lightGray    color = "LIGHT_GRAY"
	white        color = "WHITE"
	endc         color = "ENDC"
)

// palette maps colours to escape sequences; an empty palette disables colours.
type palette map[color]string

// newPalette returns Salt's colours, overridden by those of the theme.
func newPalette(on bool, theme map[string]string) palette {
	if !on {
		return nil
	}
	pal := palette{
		red: "0;31", lightRed: "0;1;31",
		green: "0;32", lightGreen: "0;1;32",
		lightYellow: "0;1;33",
		blue:        "0;34", lightBlue: "0;1;34",
		magenta: "0;35", lightMagenta: "0;1;35",
		cyan:     "0;36",
		darkGray: "0;1;30", lightGray: "0;37", white: "0;1;37",
		endc: "0;0",
	}
	for name, code := range theme {
		pal[color(name)] = code
	}
	for name, code := range pal {
		pal[name] = "\x1b[" + code + "m"
	}
	return pal
}

// paint wraps text in the escape sequences of a colour.
func (pal palette) paint(c color, text string) string {
	return pal[c] + text + pal[endc]
}
