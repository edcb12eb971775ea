package evidence

import (
	"math"
	"strconv"
)

// maxPlainDigits is the longest integer whose every value is a double that prints as itself.
const maxPlainDigits = 15

// scanNumber is the length of the number (RFC 8259) at the start of p, 0 if there is none.
func scanNumber(p []byte) int {
	i := 0
	if i < len(p) && p[i] == '-' {
		i++
	}
	whole := digits(p[i:])
	if whole == 0 || whole > 1 && p[i] == '0' {
		return 0
	}
	i += whole
	if i < len(p) && p[i] == '.' {
		n := digits(p[i+1:])
		if n == 0 {
			return 0
		}
		i += 1 + n
	}
	if i < len(p) && (p[i] == 'e' || p[i] == 'E') {
		j := i + 1
		if j < len(p) && (p[j] == '+' || p[j] == '-') {
			j++
		}
		n := digits(p[j:])
		if n == 0 {
			return 0
		}
		i = j + n
	}
	return i
}

func digits(p []byte) int {
	n := 0
	for n < len(p) && p[n] >= '0' && p[n] <= '9' {
		n++
	}
	return n
}

// appendNumber appends the ECMAScript form of the double nearest to a valid number; false if it is not finite.
func appendNumber(dst, text []byte) ([]byte, bool) {
	if n := len(text); n <= maxPlainDigits && digits(text) == n ||
		n > 1 && n <= maxPlainDigits && text[0] == '-' && text[1] != '0' && digits(text[1:]) == n-1 {
		return append(dst, text...), true
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return dst, false
	}
	return appendFloat(dst, f), true
}

// appendFloat appends a finite double as ECMAScript's Number::toString does.
func appendFloat(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// strconv writes at least two digits of exponent, ECMAScript only those it needs; above zero there are two.
	if n := len(dst); dst[n-2] == '0' && dst[n-3] == '-' {
		dst = append(dst[:n-2], dst[n-1])
	}
	return dst
}
