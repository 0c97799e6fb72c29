package main

import (
	"mime"
	"path/filepath"
	"strings"
)

// moreTypes are those that people send and that neither Go nor every system knows.
var moreTypes = map[string]string{
	".7z":      "application/x-7z-compressed",
	".csv":     "text/csv; charset=utf-8",
	".doc":     "application/msword",
	".docx":    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".epub":    "application/epub+zip",
	".flac":    "audio/flac",
	".gz":      "application/gzip",
	".heic":    "image/heic",
	".iso":     "application/x-iso9660-image",
	".m4a":     "audio/mp4",
	".md":      "text/markdown; charset=utf-8",
	".mkv":     "video/x-matroska",
	".mov":     "video/quicktime",
	".mp3":     "audio/mpeg",
	".mp4":     "video/mp4",
	".odt":     "application/vnd.oasis.opendocument.text",
	".parquet": "application/vnd.apache.parquet",
	".ppt":     "application/vnd.ms-powerpoint",
	".pptx":    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".rtf":     "application/rtf",
	".tar":     "application/x-tar",
	".tif":     "image/tiff",
	".tiff":    "image/tiff",
	".txt":     "text/plain; charset=utf-8",
	".wav":     "audio/wav",
	".webm":    "video/webm",
	".xls":     "application/vnd.ms-excel",
	".xlsx":    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".xz":      "application/x-xz",
	".zip":     "application/zip",
	".zst":     "application/zstd",
}

// typeOf guesses a media type from the extension; "" leaves it to the server. Ours come
// first, so that the same file has the same type wherever it is sent from.
func typeOf(path string) string {
	ext := strings.ToLower(filepath.Ext(path))
	if t, ok := moreTypes[ext]; ok {
		return t
	}
	return mime.TypeByExtension(ext)
}
