package httpapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"berth/controlplane"
	"berth/models"

	"github.com/gin-gonic/gin"
)

// Companion's S3 API, as @uppy/aws-s3 5 and 6 call it, with what Companion lacks: every
// call is of a caller, and the pair of multipart upload id and key that it names must be
// of one upload of that caller. Its clients do not tell a file's size, so that sizes and
// quotas are settled when S3 attests them.

// uppyRoutes registers the API twice: for callers with a cookie or a bearer token, and
// for those whose grant is in the path.
func (a *API) uppyRoutes(e *gin.Engine) {
	quick := a.timeout(a.RequestTimeout)
	for _, g := range []*gin.RouterGroup{e.Group("/uppy", a.uppyCaller), e.Group("/uppy/:grant", a.uppyGrant)} {
		g.Use(a.limitCaller, a.need(models.ScopeUpload))
		s3 := g.Group("/s3")
		s3.GET("/params", quick, a.uppyParams)
		s3.GET("/sts", a.uppySTS)
		s3.POST("/multipart", quick, a.uppyCreate)
		s3.GET("/multipart/:uploadId", quick, a.uppyList)
		s3.GET("/multipart/:uploadId/batch", quick, a.uppyBatch)
		s3.GET("/multipart/:uploadId/:partNumber", quick, a.uppySign)
		s3.POST("/multipart/:uploadId/complete", a.timeout(a.CompleteTimeout), a.uppyComplete)
		s3.DELETE("/multipart/:uploadId", a.through(a.RequestTimeout), a.uppyAbort)
	}
}

// uppyForm is the answer to /s3/params: a POST policy form.
type uppyForm struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Fields  map[string]string `json:"fields"`
	Expires int               `json:"expires"` // seconds from now
}

// uppyObject is where an upload's bytes go, and after complete where its file is.
type uppyObject struct {
	Location string `json:"location,omitempty"`
	Key      string `json:"key"`
	UploadID string `json:"uploadId,omitempty"`
	Bucket   string `json:"bucket"`
}

// uppyPart is a part in lists and in the body of complete. In lists, Size is left out
// once S3 has put the parts together and no longer tells.
type uppyPart struct {
	PartNumber int    `json:"PartNumber"`
	ETag       string `json:"ETag"`
	Size       int64  `json:"Size,omitempty"`
}

type uppyURL struct {
	URL     string `json:"url"`
	Expires int    `json:"expires"` // seconds from now
}

type uppyURLs struct {
	PresignedURLs map[string]string `json:"presignedUrls"`
}

type uppyCreateRequest struct {
	Filename string          `json:"filename"`
	Type     *string         `json:"type"`
	Metadata json.RawMessage `json:"metadata"`
}

type uppyCompleteRequest struct {
	Parts []uppyPart `json:"parts"`
}

var (
	uppyCreateShape   = shapeOf[uppyCreateRequest]()
	uppyCompleteShape = shapeOf[uppyCompleteRequest]()
)

// uppyParams opens an upload and signs the form that takes its bytes. Uppy asks again
// when it sends again: each time is an upload of its own, of which those that get no
// bytes expire.
func (a *API) uppyParams(c *gin.Context) {
	if isHead(c.Request) { // GET opens an upload here; who only looks must not
		e := models.Errorf(models.CodeInvalidRequest, "this path takes GET, OPTIONS only")
		c.Header("Allow", "GET, OPTIONS")
		failWith(c, http.StatusMethodNotAllowed, e, e)
		return
	}
	req, err := uppyParamsRequest(c.Request.URL.RawQuery)
	if err == nil {
		req, err = uppyOpen(exchangeOf(c).caller, req, models.MethodSingle)
	}
	if err != nil {
		fail(c, err)
		return
	}
	ctx, caller := c.Request.Context(), exchangeOf(c).caller
	view, err := a.Service.Open(ctx, caller, req)
	if err != nil {
		fail(c, err)
		return
	}
	form, until, err := a.Service.Form(ctx, caller, view.ID)
	if err != nil {
		fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, uppyForm{Method: http.MethodPost, URL: form.URL, Fields: form.Fields, Expires: a.seconds(until)})
}

func (a *API) uppyCreate(c *gin.Context) {
	w, _, err := body[uppyCreateRequest](c, a.MaxBody, uppyCreateShape, "filename")
	req := controlplane.OpenRequest{Name: w.Filename, Metadata: present(w.Metadata)}
	if w.Type != nil {
		req.ContentType = *w.Type
	}
	if err == nil {
		req, err = uppyOpen(exchangeOf(c).caller, req, models.MethodMultipart)
	}
	if err != nil {
		fail(c, err)
		return
	}
	view, err := a.Service.Open(c.Request.Context(), exchangeOf(c).caller, req)
	if err != nil {
		fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, uppyObject{Key: view.Key, UploadID: view.S3UploadID, Bucket: a.Service.Bucket(view.Store)})
}

// uppyList lists what S3 holds, all of it. Of an upload that is completed, whose answer
// to complete was lost perhaps, it lists what there was, so that the client goes on to
// complete again, and learns it.
func (a *API) uppyList(c *gin.Context) {
	id, ok := a.uppyUpload(c)
	if !ok {
		return
	}
	ctx, caller := c.Request.Context(), exchangeOf(c).caller
	list, err := a.Service.Parts(ctx, caller, id)
	if assembled := err == nil && len(list.Parts) > 0 && list.Parts[0].ETag == ""; assembled || models.ErrorCode(err) == models.CodeSessionClosed {
		view, lost := a.Service.Upload(ctx, caller, id)
		if lost == nil && (view.State == models.UploadCompleted || view.State == models.UploadCommitted) {
			writeJSON(c, http.StatusOK, uppyPartsOf(view.ETag))
			return
		}
		err = cmp.Or(lost, err)
	}
	if err != nil {
		fail(c, err)
		return
	}
	out := make([]uppyPart, len(list.Parts))
	for i, p := range list.Parts {
		out[i] = uppyPart{PartNumber: p.Number, ETag: `"` + p.ETag + `"`, Size: p.Size}
	}
	writeJSON(c, http.StatusOK, out)
}

// uppyPartsOf is a list of the parts of an object that S3 has put together. How many there
// were stands at the end of the object's ETag in S3 and most stores; where it does not,
// every number is listed: whichever the client asks for, its bytes are there.
func uppyPartsOf(etag string) []uppyPart {
	_, n := models.SplitComposite(etag)
	if n < 1 || n > models.MaxParts {
		n = models.MaxParts
	}
	out := make([]uppyPart, n)
	for i := range out {
		out[i] = uppyPart{PartNumber: i + 1, ETag: `"` + etag + `"`}
	}
	return out
}

func (a *API) uppySign(c *gin.Context) {
	number, err := partNumber(c.Param("partNumber"))
	if err != nil {
		fail(c, err)
		return
	}
	signed, ok := a.uppySigned(c, []int{number})
	if ok {
		writeJSON(c, http.StatusOK, uppyURL{URL: signed.Parts[0].URL, Expires: a.seconds(signed.ExpiresAt)})
	}
}

func (a *API) uppyBatch(c *gin.Context) {
	var numbers []int
	q, err := query(c.Request, "key", "partNumbers")
	list := strings.Split(q["partNumbers"], ",")
	if err == nil && len(list) > models.MaxParts {
		err = invalid("partNumbers", "lists more than %d parts", models.MaxParts)
	}
	for i := 0; err == nil && i < len(list); i++ {
		var n int
		n, err = partNumber(list[i])
		numbers = append(numbers, n)
	}
	if err != nil {
		fail(c, err)
		return
	}
	signed, ok := a.uppySigned(c, numbers)
	if !ok {
		return
	}
	out := uppyURLs{PresignedURLs: make(map[string]string, len(signed.Parts))}
	for _, p := range signed.Parts {
		out.PresignedURLs[strconv.Itoa(p.Number)] = p.URL
	}
	writeJSON(c, http.StatusOK, out)
}

// uppySigned signs parts of the upload that the request names, or answers why not.
func (a *API) uppySigned(c *gin.Context, numbers []int) (controlplane.Signed, bool) {
	id, ok := a.uppyUpload(c, "partNumbers")
	if !ok {
		return controlplane.Signed{}, false
	}
	req := controlplane.SignRequest{Parts: make([]controlplane.PartRequest, len(numbers))}
	for i, n := range numbers {
		req.Parts[i].Number = n
	}
	signed, err := a.Service.Sign(c.Request.Context(), exchangeOf(c).caller, id, req)
	if err != nil {
		fail(c, err)
		return controlplane.Signed{}, false
	}
	return signed, true
}

// partNumber reads a number as Uppy writes it: digits. What numbers there are is the use
// case's to say.
func partNumber(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, models.Errorf(models.CodePartOutOfRange, "the part number must be a number between 1 and %d", models.MaxParts)
	}
	return int(n), nil
}

// uppyComplete demands the client's list: nothing else says that all parts were sent.
func (a *API) uppyComplete(c *gin.Context) {
	id, ok := a.uppyUpload(c)
	if !ok {
		return
	}
	w, _, err := body[uppyCompleteRequest](c, max(partsBody, a.MaxBody), uppyCompleteShape, "parts")
	switch {
	case err != nil:
	case len(w.Parts) == 0:
		err = invalid("parts", "lists no part")
	case len(w.Parts) > models.MaxParts:
		err = invalid("parts", "lists more than %d parts", models.MaxParts)
	}
	req := controlplane.CompleteRequest{Parts: make([]models.Part, len(w.Parts))}
	for i, p := range w.Parts {
		if err == nil && p.ETag == "" {
			err = invalid("parts", "part %d has no ETag", p.PartNumber)
		}
		req.Parts[i] = models.Part{Number: p.PartNumber, ETag: strings.Trim(p.ETag, `"`)}
	}
	if err != nil {
		fail(c, err)
		return
	}
	view, err := a.Service.Complete(c.Request.Context(), exchangeOf(c).caller, id, req)
	if err != nil {
		fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, uppyObject{
		Location: a.base(c.Request) + "/v1/files/" + string(view.FileID) + "/content",
		Key:      c.Query("key"), Bucket: a.Service.Bucket(view.Store),
	})
}

func (a *API) uppyAbort(c *gin.Context) {
	id, ok := a.uppyUpload(c)
	if !ok {
		return
	}
	if _, err := a.Service.Abort(c.Request.Context(), exchangeOf(c).caller, id); err != nil {
		fail(c, err)
		return
	}
	writeBytes(c, http.StatusOK, jsonType, []byte("{}\n")) // Uppy 5 parses it: not 204
}

// uppySTS says why there are no credentials to be had.
func (a *API) uppySTS(c *gin.Context) {
	fail(c, models.Errorf(models.CodeNotFound, "there are no temporary credentials here: with them a client could write what was not agreed on; upload without getTemporarySecurityCredentials"))
}

// uppyUpload finds the upload that multipart upload id and key name together, or answers
// 404. The query takes the key and what else is named.
func (a *API) uppyUpload(c *gin.Context, more ...string) (models.UploadID, bool) {
	q, err := query(c.Request, append(more, "key")...)
	if err != nil {
		fail(c, err)
		return "", false
	}
	key, s3 := q["key"], c.Param("uploadId")
	if key == "" || s3 == "" || !utf8.ValidString(s3) || strings.ContainsRune(s3, 0) {
		fail(c, models.NotFound("upload"))
		return "", false
	}
	id, err := a.Service.UploadOf(c.Request.Context(), exchangeOf(c).caller, key, s3)
	if err != nil {
		fail(c, err)
		return "", false
	}
	return id, true
}

const metadataPrefix = "metadata["

// uppyParamsRequest reads filename, type and metadata[…]. Other parameters are passed
// over: the application's own, that Uppy's users put there.
func uppyParamsRequest(raw string) (req controlplane.OpenRequest, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return req, models.Errorf(models.CodeInvalidRequest, "the query is not form-encoded")
	}
	meta := map[string]string{}
	for name, vs := range values {
		own := name == "filename" || name == "type"
		key, isMeta := strings.CutPrefix(name, metadataPrefix)
		isMeta = isMeta && strings.HasSuffix(key, "]")
		switch {
		case !own && !isMeta:
			continue
		case len(vs) > 1:
			return req, invalid("query", "a parameter is given twice")
		case !plainText(name) || !plainText(vs[0]):
			return req, invalid("query", "is not UTF-8 text without NUL")
		case isMeta:
			meta[strings.TrimSuffix(key, "]")] = vs[0]
		}
	}
	req.Name, req.ContentType = values.Get("filename"), values.Get("type")
	if len(meta) > 0 {
		req.Metadata = mustMarshal(meta)
	}
	return req, nil
}

func plainText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

const defaultCollection = "default"

// uppyOpen makes the request to open out of what Uppy tells. The collection is that of
// the metadata, else the grant's, else "default". What Uppy puts into every file's
// metadata and the record has anyway is left out of it: the name, the type, and the
// relative path where there is none.
func uppyOpen(caller models.Caller, req controlplane.OpenRequest, m models.Method) (controlplane.OpenRequest, error) {
	req.SizeUnknown, req.Method = true, m
	if req.Metadata != nil {
		var meta map[string]json.RawMessage
		if err := json.Unmarshal(req.Metadata, &meta); err != nil {
			return req, models.Errorf(models.CodeMetadataInvalid, "metadata: is not a JSON object").With("field", "metadata")
		}
		if raw, there := meta["collection"]; there {
			if err := json.Unmarshal(raw, &req.Collection); err != nil {
				return req, invalid("metadata.collection", "must be a string")
			}
			delete(meta, "collection")
		}
		for key, known := range map[string][]string{"name": {req.Name}, "type": {req.ContentType}, "relativePath": {"", "null"}} {
			for _, k := range known {
				if raw := string(meta[key]); raw == string(mustMarshal(k)) || raw == "null" {
					delete(meta, key)
				}
			}
		}
		req.Metadata = mustMarshal(meta)
	}
	if caller.Grant != nil {
		req.Collection = cmp.Or(req.Collection, caller.Grant.Collection)
	}
	req.Collection = cmp.Or(req.Collection, defaultCollection)
	return req, nil
}

// seconds is the time left until t, whole seconds, at least one.
func (a *API) seconds(t time.Time) int { return max(int(t.Sub(a.Now())/time.Second), 1) }

// base is where the caller reaches us: as configured, or as it says itself. The answer
// goes to nobody else.
func (a *API) base(r *http.Request) string {
	if a.PublicURL != "" {
		return strings.TrimSuffix(a.PublicURL, "/")
	}
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" || r.Header.Get("Origin") == "https://"+r.Host {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}
