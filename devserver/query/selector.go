package query

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vramprof/vramprof/internal/profiles"
)

// maxSelector bounds a selector in bytes; thirty labels of the longest name and value that Pyroscope takes fit.
const maxSelector = 128 << 10

// Selector is what a profile's labels must be: all of its matchers hold. A label that is absent is one of the empty value.
type Selector []matcher

type matcher struct {
	name, value string
	pattern     *regexp.Regexp // of =~ and !~, anchored at both ends
	negated     bool
}

// Matches says whether the labels are selected.
func (s Selector) Matches(labels profiles.Labels) bool {
	for _, m := range s {
		value, _ := labels.Get(m.name)
		holds := value == m.value
		if m.pattern != nil {
			holds = m.pattern.MatchString(value)
		}
		if holds == m.negated {
			return false
		}
	}
	return true
}

// ParseSelector reads a selector like {service_name="llm", version=~"v1|v2", "k8s.pod.name"!=""}. {} selects everything. The
// name of the profile may stand before the braces or instead of them, or quoted within them, as in gpu{version="v1"}. Names that are not identifiers, and every value, are quoted with ", ' or `, with Go's escapes in
// the first two. A pattern is RE2 and must match the whole value.
func ParseSelector(text string) (Selector, error) {
	switch {
	case text == "":
		return nil, fmt.Errorf("the label selector is empty; {} selects everything")
	case len(text) > maxSelector:
		return nil, fmt.Errorf("the label selector has %d bytes; at most %d are read", len(text), maxSelector)
	case !utf8.ValidString(text):
		return nil, fmt.Errorf("the label selector is not UTF-8")
	}
	p := parser{rest: text}
	selector, err := p.selector()
	if err != nil {
		return nil, fmt.Errorf("label selector %s: at byte %d: %w", text, len(text)-len(p.rest), err)
	}
	return selector, nil
}

type parser struct{ rest string }

func (p *parser) selector() (Selector, error) {
	var selector Selector
	p.space()
	if name := metric.FindString(p.rest); name != "" {
		p.rest = p.rest[len(name):]
		selector = append(selector, matcher{name: "__name__", value: name})
		if p.space(); p.rest == "" {
			return selector, nil
		}
	}
	if !p.take("{") {
		return nil, fmt.Errorf("expected {")
	}
	for !p.take("}") {
		m, err := p.matcher()
		if err != nil {
			return nil, err
		}
		selector = append(selector, m)
		if p.take(",") {
			continue
		}
		if !p.take("}") {
			return nil, fmt.Errorf("expected , or }")
		}
		break
	}
	if p.space(); p.rest != "" {
		return nil, fmt.Errorf("nothing may follow the }")
	}
	return selector, nil
}

var (
	identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*`)
	metric     = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
)

func (p *parser) matcher() (matcher, error) {
	p.space()
	var m matcher
	if m.name = identifier.FindString(p.rest); m.name != "" {
		p.rest = p.rest[len(m.name):]
	} else {
		var err error
		if m.name, err = p.quoted(); err != nil {
			return m, fmt.Errorf("expected the name of a label, quoted unless it is an identifier: %w", err)
		}
		if m.name == "" {
			return m, fmt.Errorf("the name of a label is empty")
		}
		if p.space(); strings.HasPrefix(p.rest, ",") || strings.HasPrefix(p.rest, "}") {
			return matcher{name: "__name__", value: m.name}, nil
		}
	}
	isPattern := false
	switch {
	case p.take("=~"):
		isPattern = true
	case p.take("!~"):
		isPattern, m.negated = true, true
	case p.take("!="):
		m.negated = true
	case p.take("="):
	default:
		return m, fmt.Errorf("expected =, !=, =~ or !~ after %q", m.name)
	}
	p.space()
	var err error
	if m.value, err = p.quoted(); err != nil {
		return m, fmt.Errorf("expected a quoted value for %q: %w", m.name, err)
	}
	if isPattern {
		if m.pattern, err = anchored(m.value); err != nil {
			return m, fmt.Errorf("the pattern of %q: %w", m.name, err)
		}
	}
	return m, nil
}

// anchored compiles a pattern to match whole values. It must be one by itself: in "a)|(b" the anchors would come apart.
func anchored(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?s:` + pattern + `)\z`)
}

// quoted reads a string in Go's syntax, or the same in single quotes.
func (p *parser) quoted() (string, error) {
	if p.rest == "" || !strings.Contains("\"'`", p.rest[:1]) {
		return "", fmt.Errorf("no quote")
	}
	quote, rest := p.rest[0], p.rest[1:]
	if quote == '`' {
		raw, after, closed := strings.Cut(rest, "`")
		if !closed {
			return "", fmt.Errorf("the quote is not closed")
		}
		p.rest = after
		return raw, nil
	}
	var value strings.Builder
	for rest != "" && rest[0] != quote {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, quote)
		if err != nil || r == '\n' && rest[0] == '\n' {
			return "", fmt.Errorf("an escape or a line break that a quoted string cannot have")
		}
		if r < utf8.RuneSelf || multibyte {
			value.WriteRune(r)
		} else {
			value.WriteByte(byte(r)) // \xff and \377 are bytes
		}
		rest = tail
	}
	if rest == "" {
		return "", fmt.Errorf("the quote is not closed")
	}
	p.rest = rest[1:]
	return value.String(), nil
}

func (p *parser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

func (p *parser) take(token string) bool {
	p.space()
	rest, found := strings.CutPrefix(p.rest, token)
	if found {
		p.rest = rest
	}
	return found
}
