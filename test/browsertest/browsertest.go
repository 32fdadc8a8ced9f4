// Package browsertest drives a real browser, Chromium as Debian packages it,
// by the WebDriver protocol (W3C) that its chromedriver speaks over HTTP.
//
// Without a browser the test is skipped, or fails, as package tools says.
package browsertest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/host/freeport"
	"brine/test/tools"
)

// Browser is one window without history, cookies or files.
type Browser struct {
	t   testing.TB
	url string // of the session
}

// Cookie is a cookie stored by the browser.
type Cookie struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Path     string `json:"path"`
	HTTPOnly bool   `json:"httpOnly"`
	Secure   bool   `json:"secure"`
	SameSite string `json:"sameSite"`
	Expiry   int64  `json:"expiry"`
}

// flags reduce the browser to what tests need: no window, no first-run dialogs, no network traffic
// of its own.
var flags = []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server", "--window-size=1400,1000"}

// giveUp is the timeout of one step of a browser.
const giveUp = 2 * time.Minute

// Start opens a browser that accepts any certificate. It is closed at the end of the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	chromium, driver := tools.Need(t, "chromium", "chromium"), tools.Need(t, "chromium-driver", "chromedriver")
	dir, err := os.MkdirTemp("", "brine-browser-")
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freeport.TCP(1)
	if err != nil {
		t.Fatal(err)
	}
	port := ports[0]
	out, err := os.Create(filepath.Join(dir, "driver.log"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(driver, fmt.Sprintf("--port=%d", port))
	c.Stdout, c.Stderr = out, out
	c.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end all processes of the browser
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	b := &Browser{t: t}
	t.Cleanup(func() {
		if b.url != "" {
			b.send(http.MethodDelete, "", nil, nil) // the process is killed anyway
		}
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		c.Wait()
		out.Close()
		os.RemoveAll(dir)
	})
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	for end := time.Now().Add(giveUp); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(base + "/status")
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("chromedriver does not answer: %v", err)
		}
	}
	args := append([]string{"--user-data-dir=" + filepath.Join(dir, "profile")}, flags...)
	var session struct {
		ID string `json:"sessionId"`
	}
	b.url = base
	err = b.send(http.MethodPost, "/session", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"acceptInsecureCerts": true, "timeouts": map[string]any{"script": giveUp.Milliseconds(), "pageLoad": giveUp.Milliseconds()},
		"goog:chromeOptions": map[string]any{"binary": chromium, "args": args}, "goog:loggingPrefs": map[string]any{"browser": "ALL"},
	}}}, &session)
	if err != nil {
		log, _ := os.ReadFile(out.Name())
		b.url = ""
		t.Fatalf("the browser does not start: %v\n%s", err, log)
	}
	b.url = base + "/session/" + session.ID
	return b
}

// send sends a command to the driver and decodes the value of its answer.
func (b *Browser) send(method, path string, body, to any) error {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequest(method, b.url+path, in)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 2 * giveUp}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Value json.RawMessage `json:"value"`
	}{}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %.2000s", method, path, answer.Value)
	}
	if to == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, to)
}

func (b *Browser) must(method, path string, body, to any) {
	b.t.Helper()
	if err := b.send(method, path, body, to); err != nil {
		b.t.Fatal(err)
	}
}

// Open opens a page and waits until it is loaded.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.must(http.MethodPost, "/url", map[string]any{"url": url}, nil)
}

// Run executes the body of an async function in the page and decodes its result into to. An
// exception fails the test.
func (b *Browser) Run(to any, script string, args ...any) {
	b.t.Helper()
	if args == nil {
		args = []any{}
	}
	var got struct {
		Value json.RawMessage `json:"value"`
		Error string          `json:"error"`
	}
	b.must(http.MethodPost, "/execute/async", map[string]any{"args": args, "script": `
		const done = arguments[arguments.length - 1], args = Array.from(arguments).slice(0, -1);
		(async (...args) => {` + script + `})(...args).then(v => done({value: v === undefined ? null : v}), e => done({error: String(e)}));`}, &got)
	if got.Error != "" {
		b.t.Fatalf("the page: %s, in %s", got.Error, script)
	}
	if to != nil {
		if err := json.Unmarshal(got.Value, to); err != nil {
			b.t.Fatalf("%v: %s", err, got.Value)
		}
	}
}

// Cookies returns the cookies of the page, including those that its scripts cannot read.
func (b *Browser) Cookies() (all []Cookie) {
	b.t.Helper()
	b.must(http.MethodGet, "/cookie", nil, &all)
	return all
}

// special are the keys of WebDriver without a character.
var special = map[string]string{"Enter": "\ue007", "Tab": "\ue004", "Escape": "\ue00c", "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014",
	"ArrowDown": "\ue015", "Home": "\ue011", "End": "\ue010", "PageUp": "\ue00e", "PageDown": "\ue00f"}

// control is the key Control of WebDriver.
const control = "\ue009"

// Type presses and releases keys one after the other: the characters of each text, or one of the
// special keys, such as Enter and ArrowDown, or a key with Control, as in Control+k. The element with the focus
// receives them.
func (b *Browser) Type(texts ...string) {
	b.t.Helper()
	var actions []map[string]any
	press := func(key string) {
		actions = append(actions, map[string]any{"type": "keyDown", "value": key}, map[string]any{"type": "keyUp", "value": key})
	}
	for _, text := range texts {
		if key, ok := special[text]; ok {
			press(key)
			continue
		}
		if key, ok := strings.CutPrefix(text, "Control+"); ok {
			actions = append(actions, map[string]any{"type": "keyDown", "value": control})
			if k, ok := special[key]; ok {
				key = k
			}
			press(key)
			actions = append(actions, map[string]any{"type": "keyUp", "value": control})
			continue
		}
		for _, r := range text {
			press(string(r))
		}
	}
	b.must(http.MethodPost, "/actions", map[string]any{"actions": []any{map[string]any{"type": "key", "id": "keyboard", "actions": actions}}}, nil)
}

// Command sends a command of the DevTools protocol.
func (b *Browser) Command(name string, params map[string]any) {
	b.t.Helper()
	b.must(http.MethodPost, "/goog/cdp/execute", map[string]any{"cmd": name, "params": params}, nil)
}

// Ask sends a command of the DevTools protocol and decodes its result into to.
func (b *Browser) Ask(to any, name string, params map[string]any) {
	b.t.Helper()
	b.must(http.MethodPost, "/goog/cdp/execute", map[string]any{"cmd": name, "params": params}, to)
}

// Width sets the width of the page in pixels; 0 resets it.
func (b *Browser) Width(pixels int) {
	b.t.Helper()
	if pixels == 0 {
		b.Command("Emulation.clearDeviceMetricsOverride", map[string]any{})
		return
	}
	b.Command("Emulation.setDeviceMetricsOverride", map[string]any{"width": pixels, "height": 740, "deviceScaleFactor": 1, "mobile": false})
}

// Scheme sets the system's preferred color scheme, light or dark.
func (b *Browser) Scheme(name string) {
	b.t.Helper()
	b.Command("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": name}}})
}

// Message is a log message of the browser.
type Message struct {
	Level  string `json:"level"`
	Source string `json:"source"`
	Text   string `json:"message"`
}

// Messages returns the messages logged since the last call: errors of scripts, failed requests,
// violations of a content security policy.
func (b *Browser) Messages() (all []Message) {
	b.t.Helper()
	b.must(http.MethodPost, "/se/log", map[string]any{"type": "browser"}, &all)
	return all
}

// Picture returns a screenshot of the page as PNG.
func (b *Browser) Picture() []byte {
	b.t.Helper()
	var text string
	b.must(http.MethodGet, "/screenshot", nil, &text)
	png, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}
