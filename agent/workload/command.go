package workload

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// name guesses what a command line runs: for an interpreter its script or module, else the command.
func name(args []string) string {
	if len(args) == 0 {
		return ""
	}
	command := baseName(args[0])
	if python.MatchString(command) {
		if script := pythonScript(args[1:]); script != "" {
			return script
		}
		return command
	}
	if suffixes := scripts[command]; suffixes != nil {
		for _, arg := range args[1:] {
			if slices.Contains(suffixes, path.Ext(arg)) && !strings.HasPrefix(arg, "-") {
				return stem(arg)
			}
		}
	}
	return command
}

// python matches the names of Python interpreters, also of free-threaded and debug builds.
var python = regexp.MustCompile(`^(python|pypy)(\d+(\.\d+)?t?d?)?$`)

// scripts are the suffixes by which a script is told from an option's argument, by interpreter. Those of Python need none:
// its options are known.
var scripts = map[string][]string{
	"bash": {".sh"}, "sh": {".sh"}, "dash": {".sh"}, "zsh": {".sh"},
	"java": {".jar"}, "julia": {".jl"}, "lua": {".lua"}, "node": {".js", ".mjs", ".cjs"},
	"perl": {".pl"}, "R": {".R", ".r"}, "Rscript": {".R", ".r"}, "ruby": {".rb"},
}

// pythonScript gives the script or module of an interpreter's arguments, empty if it runs neither. The options are those of
// CPython 3.14 (Python/initconfig.c, Python/getopt.c): -c, -m, -W and -X take an argument, in the same word or the next.
func pythonScript(args []string) string {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			if len(args) == 0 {
				return ""
			}
			return script(args[0])
		case arg == "--check-hash-based-pycs":
			args = args[min(1, len(args)):]
			continue
		case arg == "-", arg == "":
			return ""
		case strings.HasPrefix(arg, "--"):
			continue
		case !strings.HasPrefix(arg, "-"):
			return script(arg)
		}
		option := strings.IndexAny(arg[1:], "cmWX") + 1
		if option == 0 {
			continue
		}
		value := arg[option+1:]
		if value == "" && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		switch arg[option] {
		case 'c':
			return ""
		case 'm':
			return strings.TrimSuffix(value, ".__main__")
		}
	}
	return ""
}

// script names a Python script. A package that is run as a folder or by its __main__.py has the folder's name.
func script(arg string) string {
	if path.Base(arg) == "__main__.py" {
		if dir := path.Base(path.Dir(arg)); dir != "." && dir != "/" {
			return dir
		}
	}
	return stem(arg)
}

// stem is a file's name without folder and suffix.
func stem(file string) string {
	base := path.Base(file)
	if s := strings.TrimSuffix(base, path.Ext(base)); s != "" {
		return s
	}
	return base
}

// baseName is a command's name. A process that wrote a title over its arguments has one with spaces in it, of which the
// first word is a name and the rest may hold anything. A login shell begins with a dash.
func baseName(command string) string {
	command = strings.TrimSpace(command)
	if base := path.Base(command); !strings.Contains(base, " ") && base != "." && base != "/" {
		return strings.TrimSuffix(strings.TrimPrefix(base, "-"), ":")
	}
	first, _, _ := strings.Cut(command, " ")
	if base := path.Base(first); base != "." && base != "/" {
		return strings.TrimSuffix(strings.TrimPrefix(base, "-"), ":")
	}
	return ""
}
