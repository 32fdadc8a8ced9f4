package packages

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/helm"
	"brine/internal/py/value"
)

func init() { units.Declare("helm", helmModule) }

func helmModule() fn.Module {
	ex := func(text string) fn.Option { return fn.Example("salt '*' helm." + text) }
	succeeds, text, data := helm.Flags.Succeeds, helm.Flags.Text, helm.Flags.Data
	doc := `Helm, the package manager of Kubernetes. Functions that change something return true, or what helm prints.`
	return fn.Module{Name: "helm", Doc: doc, Funcs: []fn.Func{
		helmFunc("completion SHELL", text, `Return a script that completes command lines.`, ex("completion bash")),
		helmFunc("create NAME", succeeds, `Create a directory with a new chart.`, ex("create NAME")),
		helmFunc("dependency build CHART", succeeds, `Get the charts that a chart depends on, as its lock file says.`, ex("dependency_build CHART")),
		helmFunc("dependency list CHART", text, `Return what a chart depends on.`, ex("dependency_list CHART")),
		helmFunc("dependency update CHART", succeeds, `Get the charts that a chart depends on.`, ex("dependency_update CHART")),
		helmFunc("env", text, `Return helm's variables.`, ex("env")),
		helmFunc("get all RELEASE", text, `Return all about a release.`, ex("get_all RELEASE")),
		helmFunc("get hooks RELEASE", text, `Return the hooks of a release.`, ex("get_hooks RELEASE")),
		helmFunc("get manifest RELEASE", text, `Return the manifest of a release.`, ex("get_manifest RELEASE")),
		helmFunc("get notes RELEASE", text, `Return the notes of a release.`, ex("get_notes RELEASE")),
		helmFunc("get values RELEASE", data, `Return the values of a release.`, ex("get_values RELEASE")),
		helmFunc("help COMMAND", text, `Return helm's help for a command.`, ex("help COMMAND")),
		helmFunc("history RELEASE", data, `Return the revisions of a release.`, ex("history RELEASE")),
		fn.Of("install", func(ctx context.Context, c *fn.Call, r helm.Release) (any, error) { return helm.Install(ctx, c, r) },
			`Install a chart as a release.`, ex("install RELEASE CHART")),
		helmFunc("lint PATH", succeeds, `Check a chart.`, ex("lint PATH"), fn.Params("path", "values", "namespace", "set", "flags", "kvflags")),
		helmFunc("list", data, `Return the releases.`, ex("list"), fn.Params("namespace", "flags", "kvflags")),
		helmFunc("package CHART", succeeds, `Pack a chart.`, ex("package CHART")),
		helmFunc("plugin install PATH", succeeds, `Install a plugin of helm.`, ex("plugin_install PATH")),
		helmFunc("plugin list", text, `Return the plugins of helm.`, ex("plugin_list")),
		helmFunc("plugin uninstall PLUGIN", succeeds, `Remove a plugin of helm.`, ex("plugin_uninstall PLUGIN")),
		helmFunc("plugin update PLUGIN", succeeds, `Update a plugin of helm.`, ex("plugin_update PLUGIN")),
		helmFunc("pull PKG", succeeds, `Download a chart.`, ex("pull PKG")),
		helmFunc("repo add NAME URL", succeeds, `Add a repository.`, ex("repo_add NAME URL"), fn.Params("name", "url", "namespace", "flags", "kvflags")),
		helmFunc("repo index DIRECTORY", succeeds, `Write the index of a directory of charts.`, ex("repo_index DIRECTORY"),
			fn.Params("directory", "namespace", "flags", "kvflags")),
		helmFunc("repo list", data, `Return the repositories.`, ex("repo_list"), fn.Params("namespace", "flags", "kvflags")),
		helmFunc("repo remove NAME", succeeds, `Remove a repository.`, ex("repo_remove NAME"), fn.Params("name", "namespace", "flags", "kvflags")),
		helmFunc("repo update", succeeds, `Get what repositories have now.`, ex("repo_update"), fn.Params("namespace", "flags", "kvflags")),
		fn.Of("repo_manage", func(ctx context.Context, c *fn.Call, r helm.Repos) (*value.Dict, error) {
			return helm.ManageRepos(ctx, c, r)
		},
			`Add and remove repositories, and return which.`, ex("repo_manage present=\"[{'name': 'LOCAL_NAME', 'url': 'REPO_URL'}]\" absent=\"['LOCAL_NAME']\"")),
		helmFunc("rollback RELEASE REVISION", succeeds, `Return a release to an earlier revision.`, ex("rollback RELEASE REVISION"),
			fn.Params("release", "revision", "namespace", "flags", "kvflags")),
		helmFunc("search hub KEYWORD", data, `Search charts in the Artifact Hub.`, ex("search_hub KEYWORD")),
		helmFunc("search repo KEYWORD", data, `Search charts in the repositories.`, ex("search_repo KEYWORD")),
		helmFunc("show all CHART", text, `Return all about a chart.`, ex("show_all CHART")),
		helmFunc("show chart CHART", text, `Return the definition of a chart.`, ex("show_chart CHART")),
		helmFunc("show readme CHART", text, `Return the README of a chart.`, ex("show_readme CHART")),
		helmFunc("show values CHART", text, `Return the values of a chart.`, ex("show_values CHART")),
		helmFunc("status RELEASE", data, `Return the state of a release.`, ex("status RELEASE"), fn.Params("release", "namespace", "flags", "kvflags")),
		helmFunc("template NAME CHART", text, `Return what a chart renders to.`, ex("template NAME CHART"),
			fn.Params("name", "chart", "values", "output_dir", "set", "flags", "kvflags")),
		helmFunc("test RELEASE", text, `Run the tests of a release.`, ex("test RELEASE")),
		helmFunc("uninstall RELEASE", succeeds, `Uninstall a release.`, ex("uninstall RELEASE"), fn.Params("release", "namespace", "flags", "kvflags")),
		fn.Of("upgrade", func(ctx context.Context, c *fn.Call, r helm.Release) (any, error) { return helm.Upgrade(ctx, c, r) },
			`Upgrade a release.`, ex("upgrade RELEASE CHART")),
		helmFunc("verify PATH", succeeds, `Verify the signature of a packed chart.`, ex("verify PATH")),
		helmFunc("version", text, `Return the version of helm.`, ex("version")),
	}}
}

type helmArgs struct {
	Shell     string `salt:"shell" doc:"shell, as bash"`
	Name      string `salt:"name" doc:"name"`
	URL       string `salt:"url" doc:"address of the repository"`
	Release   string `salt:"release" doc:"name of the release"`
	Revision  any    `salt:"revision" doc:"number of the revision"`
	Chart     string `salt:"chart" doc:"chart, or its directory"`
	Command   string `salt:"command" doc:"command of helm"`
	Path      string `salt:"path" doc:"path, or URL"`
	Plugin    string `salt:"plugin" doc:"name of the plugin"`
	Pkg       string `salt:"pkg" doc:"chart, or its URL"`
	Directory string `salt:"directory" doc:"directory"`
	Keyword   string `salt:"keyword" doc:"word to search for"`
	Values    any    `salt:"values" doc:"path of a file with values" default:"null"`
	OutputDir any    `salt:"output_dir" doc:"directory to write to instead" default:"null"`
	Namespace any    `salt:"namespace" doc:"namespace" default:"null"`
	Set       any    `salt:"set" doc:"value, or list of values, as NAME=VALUE" default:"null"`
	helm.Flags
}

// helmFunc declares the function that runs a command. Words in capitals stand
// for arguments, the others are its name.
func helmFunc(command string, run func(helm.Flags, context.Context, *fn.Call, ...string) (any, error), doc string, opts ...fn.Option) fn.Func {
	words := strings.Fields(command)
	var name, params []string
	for _, w := range words {
		if strings.ToUpper(w) == w {
			params = append(params, strings.ToLower(w))
		} else {
			name = append(name, w)
		}
	}
	opts = append([]fn.Option{fn.Params(append(params, "flags", "kvflags")...)}, opts...)
	return fn.Of(strings.Join(name, "_"), func(ctx context.Context, c *fn.Call, a helmArgs) (any, error) {
		of := map[string]string{"SHELL": a.Shell, "NAME": a.Name, "URL": a.URL, "RELEASE": a.Release, "REVISION": value.Str(a.Revision), "CHART": a.Chart,
			"COMMAND": a.Command, "PATH": a.Path, "PLUGIN": a.Plugin, "PKG": a.Pkg, "DIRECTORY": a.Directory, "KEYWORD": a.Keyword}
		line := append([]string{}, words...)
		for i, w := range line {
			if v, ok := of[w]; ok {
				line[i] = v
			}
		}
		return run(a.With("values", a.Values, "namespace", a.Namespace, "set", a.Set, "output-dir", a.OutputDir), ctx, c, line...)
	}, doc, opts...)
}
