package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"rea/evidence/fault"
	"rea/orchestrator"
	"rea/orchestrator/catalog"
	"rea/orchestrator/schema"
)

// Config is everything that flags, environment and configuration file decide, checked. It is built once and then only
// read.
type Config struct {
	Sandbox struct {
		Driver  string `mapstructure:"driver"`  // auto, docker or oci
		Runtime string `mapstructure:"runtime"` // runtime class, "" for the driver's own
	} `mapstructure:"sandbox"`
	Engine struct {
		Host string `mapstructure:"host"` // a unix socket as in DOCKER_HOST, "" for the usual one
	} `mapstructure:"engine"`
	StateDir string `mapstructure:"state_dir"` // absolute
	Analysis struct {
		Provider string `mapstructure:"provider"` // auto or a provider's id
	} `mapstructure:"analysis"`
	MCP struct {
		MaxResponseBytes   int64  `mapstructure:"max_response_bytes"`
		InputSchemaProfile string `mapstructure:"input_schema_profile"`
		ToolFamilies       string `mapstructure:"tool_families"` // all, or ids separated by commas
	} `mapstructure:"mcp"`
}

// setting is one thing that can be configured: by a flag, else by a variable, else by its key in the file.
type setting struct {
	key     string // in the configuration file
	env     string
	flag    string
	usage   string
	accepts string // what is accepted, for people
	valid   func(string) bool
	initial string
}

// minResponseBytes is the receive buffer below which an MCP client could not hold what the contract promises it.
const minResponseBytes = 10 << 20

// maxSafeInteger is the largest integer that every JSON reader holds exactly.
const maxSafeInteger = 1<<53 - 1

// allFamilies stands for no restriction. It is what the setting is while nobody sets it.
const allFamilies = "all"

// configSetting names the file itself, which cannot be named inside the file.
var configSetting = setting{env: "REA_CONFIG", flag: "config", usage: "configuration `file`", accepts: "the absolute path of a readable YAML file", valid: filepath.IsAbs}

var (
	driverSetting = setting{key: "sandbox.driver", env: "REA_SANDBOX_DRIVER", flag: "driver", initial: orchestrator.DriverAuto,
		usage: "what makes containers: `auto`, docker or oci", accepts: "auto, docker or oci",
		valid: oneOf(orchestrator.DriverAuto, orchestrator.DriverDocker, orchestrator.DriverOCI)}
	runtimeSetting = setting{key: "sandbox.runtime", env: "REA_SANDBOX_RUNTIME", flag: "runtime",
		usage: "`class` of the container runtime, such as runsc", accepts: "the name of an OCI runtime that the driver knows, or nothing for its own",
		valid: func(s string) bool { return s == "" || regexpMatch(`^[a-z0-9][a-z0-9._-]{0,63}$`)(s) }}
	engineSetting = setting{key: "engine.host", env: "DOCKER_HOST", flag: "engine-host",
		usage: "`address` of the container engine, a unix socket", accepts: "unix:// and the absolute path of a socket, or nothing for the usual one",
		valid: func(s string) bool { return s == "" || strings.HasPrefix(s, "unix:///") }}
	stateSetting = setting{key: "state_dir", env: "REA_STATE_DIR", flag: "state-dir",
		usage: "`directory` of store, journal and locks", accepts: "an absolute path on a local file system", valid: filepath.IsAbs}
	providerSetting = setting{key: "analysis.provider", env: "REA_ANALYSIS_PROVIDER", flag: "provider", initial: "auto",
		usage: "analysis engine that targets are opened with: `auto` or an id", accepts: "auto or the id of a provider: lower-case letters, digits and hyphens",
		valid: regexpMatch(`^[a-z0-9]+(-[a-z0-9]+)*$`)}
	responseSetting = setting{key: "mcp.max_response_bytes", env: "REA_MCP_MAX_RESPONSE_BYTES", flag: "max-response-bytes",
		usage: "receive buffer of the MCP client in `bytes`", initial: strconv.Itoa(minResponseBytes),
		accepts: "a decimal integer from 10485760 to 9007199254740991, without sign or leading zero", valid: validResponseBytes}
	profileSetting = setting{key: "mcp.input_schema_profile", env: "REA_MCP_INPUT_SCHEMA_PROFILE", flag: "input-schema-profile", initial: string(schema.Full),
		usage: "how input schemas are advertised: `full` or compact", accepts: "full, or compact for clients that refuse large schemas",
		valid: oneOf(string(schema.Full), string(schema.Compact))}
	familiesSetting = setting{key: "mcp.tool_families", env: "REA_MCP_TOOL_FAMILIES", flag: "tool-families", initial: allFamilies,
		usage: "`families` of tools to serve, separated by commas", accepts: "unset, or a comma-separated list of " + familyIDs(), valid: validFamilies}
)

// everywhere are the settings that any command may need; of the server the rest.
var (
	everywhere = []setting{driverSetting, runtimeSetting, engineSetting, stateSetting}
	ofServer   = []setting{providerSetting, responseSetting, profileSetting, familiesSetting}
)

func settings() []setting { return append(slices.Clone(everywhere), ofServer...) }

func oneOf(accepted ...string) func(string) bool {
	return func(s string) bool { return slices.Contains(accepted, s) }
}

// regexpMatch compiles the pattern when it is first used: start-up time matters.
func regexpMatch(pattern string) func(string) bool {
	return func(s string) bool { return regexp.MustCompile(pattern).MatchString(s) }
}

func validResponseBytes(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == s && n >= minResponseBytes && n <= maxSafeInteger
}

// validFamilies admits all, and a list of families of the product catalog.
func validFamilies(s string) bool {
	_, ok := catalog.ParseFamilies(s)
	return ok || s == allFamilies
}

func familyIDs() string {
	var ids []string
	for _, f := range catalog.Families() {
		ids = append(ids, f.ID)
	}
	return strings.Join(ids, ", ")
}

// addSettings adds a flag for each setting.
func addSettings(flags *pflag.FlagSet, list ...setting) {
	for _, s := range list {
		flags.String(s.flag, "", s.usage+" ("+variable(s)+")")
	}
}

func variable(s setting) string {
	if s.initial == "" {
		return s.env
	}
	return s.env + ", default " + s.initial
}

// loadConfig reads the configuration, once: flag before variable before file. The error is configuration_invalid and
// names each setting that is wrong and what it accepts, never its value, which may be a secret.
func loadConfig(flags *pflag.FlagSet) (Config, error) {
	var c Config
	v := viper.New()
	v.AllowEmptyEnv(true) // a variable that is set to nothing is set
	for _, s := range settings() {
		v.SetDefault(s.key, s.initial)
		if err := v.BindEnv(s.key, s.env); err != nil {
			return c, err
		}
		if f := flags.Lookup(s.flag); f != nil && f.Changed {
			v.Set(s.key, f.Value.String())
		}
	}
	if err := readFile(v, flags); err != nil {
		return c, err
	}
	if dir := userDir("XDG_STATE_HOME", filepath.Join(".local", "state")); dir != "" {
		v.SetDefault(stateSetting.key, filepath.Join(dir, "rea"))
	}
	if err := check(v, flags); err != nil {
		return c, err
	}
	if err := v.UnmarshalExact(&c); err != nil {
		return c, invalid(problem{"the configuration", "the documented keys and their types"}).Because(err)
	}
	return c, nil
}

// readFile reads the configuration file into v. One that was named must be there; the usual one need not.
func readFile(v *viper.Viper, flags *pflag.FlagSet) error {
	path, named, err := configPath(flags)
	if err != nil || path == "" {
		return err
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil
	}
	if err != nil {
		return invalid(problem{source(configSetting, flags), configSetting.accepts}).With("path", strings.ToValidUTF8(path, "\uFFFD")).Because(err)
	}
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(raw)); err != nil {
		return invalid(problem{source(configSetting, flags), "a YAML mapping of the documented keys" + atLine(err)}).With("path", strings.ToValidUTF8(path, "\uFFFD")).Because(err)
	}
	return nil
}

// configPath is the configuration file: the one that was named, or the user's.
func configPath(flags *pflag.FlagSet) (path string, named bool, err error) {
	if f := flags.Lookup(configSetting.flag); f != nil && f.Changed {
		path, named = f.Value.String(), true
	} else {
		path, named = os.LookupEnv(configSetting.env)
	}
	switch {
	case !named:
		dir := userDir("XDG_CONFIG_HOME", ".config")
		if dir == "" {
			return "", false, nil
		}
		return filepath.Join(dir, "rea", "config.yaml"), false, nil
	case !configSetting.valid(path):
		return "", true, invalid(problem{source(configSetting, flags), configSetting.accepts})
	}
	return path, true, nil
}

// userDir is a base directory of the XDG specification: what the variable says if that is absolute, else the usual
// place below the user's home; "" for a user without a home.
func userDir(variable, usual string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	home := userHome()
	if home == "" {
		return ""
	}
	return filepath.Join(home, usual)
}

// userHome is the user's home directory, "" for a user without one.
func userHome() string {
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return home
	}
	u, err := user.Current()
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// atLine takes the line number out of a YAML error, whose text may hold values.
func atLine(err error) string {
	if m := regexp.MustCompile(`line \d+`).FindString(err.Error()); m != "" {
		return " (the trouble is at " + m + ")"
	}
	return ""
}

// check holds what was configured against what is accepted.
func check(v *viper.Viper, flags *pflag.FlagSet) error {
	var problems []problem
	known := map[string]bool{}
	for _, s := range settings() {
		known[s.key] = true
		if text, ok := scalar(v.Get(s.key)); !ok || !s.valid(text) {
			problems = append(problems, problem{source(s, flags), s.accepts})
		}
	}
	for _, key := range v.AllKeys() {
		if !known[key] {
			problems = append(problems, problem{key, unknownKey})
		}
	}
	if problems == nil {
		return nil
	}
	slices.SortFunc(problems, func(a, b problem) int { return strings.Compare(a.Setting, b.Setting) })
	return invalid(problems...)
}

// scalar is a value of the file, the environment or a flag as text; false for anything but text and integers.
func scalar(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case int:
		return strconv.Itoa(value), true
	case int64:
		return strconv.FormatInt(value, 10), true
	}
	return "", false
}

// problem is one setting that is wrong, by the name under which it was set.
type problem struct {
	Setting    string `json:"setting"`
	Constraint string `json:"constraint"`
}

// source is the name under which a setting was given.
func source(s setting, flags *pflag.FlagSet) string {
	if f := flags.Lookup(s.flag); f != nil && f.Changed {
		return "--" + s.flag
	}
	if _, set := os.LookupEnv(s.env); set || s.key == "" {
		return s.env
	}
	return s.key
}

// unknownKey is the constraint of a key that is no setting.
const unknownKey = "not a setting; the user guide lists them all"

func invalid(problems ...problem) *fault.Error {
	var says []string
	for _, p := range problems {
		must := " must be "
		if p.Constraint == unknownKey {
			must = " is "
		}
		says = append(says, p.Setting+must+p.Constraint)
	}
	return fault.New(fault.ConfigurationInvalid, "The configuration cannot be used: "+strings.Join(says, "; ")+".",
		"Correct the named settings in the environment, the flags or the configuration file that rea is started with.").With("settings", problems)
}
