package evidence

import (
	"bufio"
	"errors"
	"io"
)

// lexer finds where one JSON value ends, without judging what is inside it.
type lexer struct {
	depth    int
	started  bool
	inString bool
	escaped  bool
	scalar   bool
}

// scan returns how many bytes of p belong to the value and whether it ends there. A number or literal ends before
// the byte that follows it; the end of the input ends it too.
func (l *lexer) scan(p []byte) (n int, done bool) {
	for n < len(p) {
		if l.inString {
			n += l.text(p[n:])
			if !l.inString && l.depth == 0 {
				return n, true
			}
			continue
		}
		b := p[n]
		switch {
		case l.scalar:
			if isSpace(b) || b == ',' || b == ']' || b == '}' {
				return n, true
			}
		case b == '"':
			l.inString = true
		case b == '{' || b == '[':
			l.depth++
		case b == '}' || b == ']':
			l.depth--
			if l.depth <= 0 {
				return n + 1, true
			}
		case !l.started:
			l.scalar = true
		}
		l.started = true
		n++
	}
	return n, false
}

// text consumes bytes of a string up to its closing quote.
func (l *lexer) text(p []byte) int {
	for i, b := range p {
		switch {
		case l.escaped:
			l.escaped = false
		case b == '\\':
			l.escaped = true
		case b == '"':
			l.inString = false
			return i + 1
		}
	}
	return len(p)
}

// valueReader reads the raw text of one value from br and stops behind it.
type valueReader struct {
	br   *bufio.Reader
	lex  lexer
	done bool
}

// Read implements io.Reader; io.EOF is the end of the value.
func (v *valueReader) Read(p []byte) (int, error) {
	if v.done {
		return 0, io.EOF
	}
	if _, err := v.br.Peek(1); err != nil {
		if err == io.EOF && v.lex.scalar {
			v.done = true
			return 0, io.EOF
		}
		return 0, unexpectedEnd(err)
	}
	chunk, _ := v.br.Peek(min(v.br.Buffered(), len(p)))
	n, done := v.lex.scan(chunk)
	copy(p, chunk[:n])
	v.done = done
	_, err := v.br.Discard(n)
	return n, err
}

func unexpectedEnd(err error) error {
	if err == io.EOF {
		return &SyntaxError{Reason: "unexpected end of JSON"}
	}
	return err
}

// objectReader walks over the members of one JSON object and holds none of their values.
type objectReader struct {
	br   *bufio.Reader
	some bool
}

// maxName bounds the key of a member of fixed metadata; the longest that the contracts know has 17 characters.
const maxName = 1 << 10

var errNotObject = errors.New("not an object")

// openObject takes the opening brace.
func openObject(r io.Reader) (*objectReader, error) {
	o := &objectReader{br: bufio.NewReaderSize(r, 64<<10)}
	b, err := o.token()
	if err != nil {
		return nil, err
	}
	if b != '{' {
		return nil, errNotObject
	}
	return o, nil
}

// token is the next byte that is not white space.
func (o *objectReader) token() (byte, error) {
	for {
		b, err := o.br.ReadByte()
		if err != nil {
			return 0, unexpectedEnd(err)
		}
		if !isSpace(b) {
			return b, nil
		}
	}
}

// next returns the key (WTF-8) of the next member and a reader of its value, which must be read to its end before
// next is called again; io.EOF after the closing brace.
func (o *objectReader) next() (string, *valueReader, error) {
	b, err := o.token()
	if err == nil && b == '}' {
		return "", nil, io.EOF
	}
	if err == nil && o.some {
		if b != ',' {
			return "", nil, &SyntaxError{Reason: "object continues with neither , nor }"}
		}
		b, err = o.token()
	}
	if err != nil {
		return "", nil, err
	}
	if b != '"' {
		return "", nil, &SyntaxError{Reason: "key expected"}
	}
	o.some = true
	if err := o.br.UnreadByte(); err != nil {
		return "", nil, err
	}
	key, err := o.key()
	if err != nil {
		return "", nil, err
	}
	return key, &valueReader{br: o.br}, o.skipSpace()
}

func (o *objectReader) key() (string, error) {
	raw, err := io.ReadAll(io.LimitReader(&valueReader{br: o.br}, maxName+1))
	if err != nil {
		return "", err
	}
	if len(raw) > maxName {
		return "", &SyntaxError{Reason: "key longer than any known one"}
	}
	text, err := Canonicalize(raw)
	if err != nil {
		return "", err
	}
	if b, err := o.token(); err != nil || b != ':' {
		return "", errors.Join(err, &SyntaxError{Reason: "key without :"})
	}
	return string(appendDecoded(nil, text[1:len(text)-1])), nil
}

// skipSpace goes to the first byte of a value.
func (o *objectReader) skipSpace() error {
	if _, err := o.token(); err != nil {
		return err
	}
	return o.br.UnreadByte()
}

// end verifies that nothing but white space follows the object.
func (o *objectReader) end() error {
	for {
		b, err := o.br.ReadByte()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !isSpace(b) {
			return &SyntaxError{Reason: "data after the value"}
		}
	}
}

// arrayReader walks over the elements of one JSON array inside a larger text and holds none of them.
type arrayReader struct {
	objectReader // for its tokens
}

// openArray takes the opening bracket; ok is false where the next value is no array.
func openArray(br *bufio.Reader) (a *arrayReader, ok bool, err error) {
	a = &arrayReader{objectReader{br: br}}
	b, err := a.token()
	return a, b == '[', err
}

// next returns a reader of the next element, which must be read to its end before next is called again; io.EOF after
// the closing bracket.
func (a *arrayReader) next() (*valueReader, error) {
	b, err := a.token()
	if err != nil {
		return nil, err
	}
	switch {
	case b == ']':
		return nil, io.EOF
	case a.some && b != ',':
		return nil, &SyntaxError{Reason: "array continues with neither , nor ]"}
	case a.some:
		err = a.skipSpace()
	default:
		err = a.br.UnreadByte()
	}
	a.some = true
	return &valueReader{br: a.br}, err
}

// canonicalValue splits the first value off canonical text.
func canonicalValue(text []byte) (value, rest []byte) {
	var l lexer
	n, _ := l.scan(text)
	return text[:n], text[n:]
}

// canonicalMembers lists the members of an object in canonical text, keys decoded.
func canonicalMembers(text []byte, yield func(key string, value []byte)) {
	for text = text[1:]; len(text) > 1; text = text[min(1, len(text)):] {
		var key, value []byte
		key, text = canonicalValue(text)
		value, text = canonicalValue(text[1:])
		yield(string(appendDecoded(nil, key[1:len(key)-1])), value)
	}
}

// canonicalElements lists the elements of an array in canonical text.
func canonicalElements(text []byte, yield func(i int, value []byte)) {
	text = text[1:]
	for i := 0; len(text) > 1; i++ {
		var value []byte
		value, text = canonicalValue(text)
		yield(i, value)
		text = text[1:]
	}
}
