package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"

	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

type digest = godigest.Digest

// tarBlock is the unit of a tar file: contents are padded to it, and two zero blocks end the file.
const tarBlock = 512

// tarball is a tar file whose last member is large: everything before that member's content, the content, and the
// padding. Reading it copies nothing into memory.
type tarball struct {
	head []byte
	body content
	tail []byte
}

// content is the last member of a tarball: bytes, or another tarball.
type content interface {
	size() int64
	reader() io.Reader
}

type blob []byte

func (b blob) size() int64       { return int64(len(b)) }
func (b blob) reader() io.Reader { return bytes.NewReader(b) }

func (t tarball) size() int64 { return int64(len(t.head)) + t.body.size() + int64(len(t.tail)) }

func (t tarball) reader() io.Reader {
	return io.MultiReader(bytes.NewReader(t.head), t.body.reader(), bytes.NewReader(t.tail))
}

func (t tarball) digest() (digest, error) { return godigest.SHA256.FromReader(t.reader()) }

// member is one small file of the outer archive.
type member struct {
	name string
	data []byte
}

// newTarball makes a tar of empty files and directories that ends with one file of the given content.
func newTarball(empty []entry, last entry, data []byte) (tarball, error) {
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	for _, e := range empty {
		if err := w.WriteHeader(e.header(0)); err != nil {
			return tarball{}, err
		}
	}
	return finish(w, &head, last, blob(data))
}

// finish writes the last member's header and computes what follows its content. The writer is not closed: it would
// demand the content.
func finish(w *tar.Writer, head *bytes.Buffer, last entry, body content) (tarball, error) {
	if err := w.WriteHeader(last.header(body.size())); err != nil {
		return tarball{}, err
	}
	padding := (tarBlock - body.size()%tarBlock) % tarBlock
	return tarball{head.Bytes(), body, make([]byte, padding+2*tarBlock)}, nil
}

// outer is the whole archive: image layout, the older manifest.json, and the layer as its last member.
func (i *Image) outer() (io.Reader, error) {
	index, err := json.Marshal(i.index())
	if err != nil {
		return nil, err
	}
	legacy, err := json.Marshal([]legacyManifest{{
		Config:   blobName(digestOf(i.config)),
		RepoTags: []string{i.Reference},
		Layers:   []string{blobName(i.diffID)},
	}})
	if err != nil {
		return nil, err
	}
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	for _, m := range []member{
		{v1.ImageLayoutFile, []byte(`{"imageLayoutVersion":"` + v1.ImageLayoutVersion + `"}`)},
		{v1.ImageIndexFile, index},
		{"manifest.json", legacy},
		{blobName(digestOf(i.config)), i.config},
		{blobName(digestOf(i.manifest)), i.manifest},
	} {
		if err := w.WriteHeader(entry{path: m.name, mode: 0o644}.header(int64(len(m.data)))); err != nil {
			return nil, err
		}
		if _, err := w.Write(m.data); err != nil {
			return nil, err
		}
	}
	t, err := finish(w, &head, entry{path: blobName(i.diffID), mode: 0o644}, i.layer)
	if err != nil {
		return nil, err
	}
	return t.reader(), nil
}

// legacyManifest is an element of manifest.json, which engines before version 25 read.
type legacyManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (i *Image) index() v1.Index {
	d := descriptor(v1.MediaTypeImageManifest, digestOf(i.manifest), int64(len(i.manifest)))
	d.Annotations = map[string]string{
		"io.containerd.image.name": "docker.io/" + i.Reference, // the name that an engine on containerd gives it
		v1.AnnotationRefName:       i.Reference[len(i.Reference)-12:],
	}
	return v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{d},
	}
}

func descriptor(mediaType string, d digest, size int64) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: size}
}

func digestOf(data []byte) digest { return godigest.SHA256.FromBytes(data) }

func blobName(d digest) string { return v1.ImageBlobsDir + "/sha256/" + d.Encoded() }
