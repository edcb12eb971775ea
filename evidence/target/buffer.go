package target

// buffers keeps a few read buffers for reuse.
var buffers = pool(make(chan []byte, 8))

type pool chan []byte

func (p pool) get() []byte {
	select {
	case b := <-p:
		return b
	default:
		return make([]byte, bufferSize)
	}
}

func (p pool) put(b []byte) {
	select {
	case p <- b:
	default:
	}
}
