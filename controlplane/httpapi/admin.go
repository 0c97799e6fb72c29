package httpapi

import (
	"net/http"
	"time"

	"berth/client/wire"
	"berth/controlplane"
	"berth/models"

	"github.com/gin-gonic/gin"
)

func (a *API) listTasks(c *gin.Context) {
	q, err := query(c.Request, "kind", "state", "cursor", "limit")
	if err != nil {
		fail(c, err)
		return
	}
	ask := controlplane.TaskQuery{Kind: models.TaskKind(q["kind"]), State: models.TaskState(q["state"])}
	if ask.Cursor, ask.Limit, err = page(q); err != nil {
		fail(c, err)
		return
	}
	p, err := a.Service.Tasks(c.Request.Context(), exchangeOf(c).caller, ask)
	if err != nil {
		fail(c, err)
		return
	}
	out := wire.TaskList{Tasks: make([]wire.Task, len(p.Tasks)), NextCursor: p.NextCursor}
	for i, k := range p.Tasks {
		out.Tasks[i] = wireTask(k)
	}
	writeJSON(c, http.StatusOK, out)
}

func (a *API) retryTask(c *gin.Context) {
	id, err := models.ParseTaskID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	k, err := a.Service.RetryTask(c.Request.Context(), exchangeOf(c).caller, id)
	if err != nil {
		fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, wireTask(k))
}

func (a *API) listEvents(c *gin.Context) {
	q, err := query(c.Request, "state", "cursor", "limit")
	if err != nil {
		fail(c, err)
		return
	}
	cursor, limit, err := page(q)
	if err != nil {
		fail(c, err)
		return
	}
	p, err := a.Service.Events(c.Request.Context(), exchangeOf(c).caller, models.OutboxState(q["state"]), cursor, limit)
	if err != nil {
		fail(c, err)
		return
	}
	out := wire.EventList{Events: make([]wire.Event, len(p.Events)), NextCursor: p.NextCursor}
	for i, e := range p.Events {
		out.Events[i] = wireEvent(e)
	}
	writeJSON(c, http.StatusOK, out)
}

func (a *API) retryEvent(c *gin.Context) {
	a.onEvent(c, func(id models.EventID) error {
		return a.Service.RetryEvent(c.Request.Context(), exchangeOf(c).caller, id)
	})
}

func (a *API) cancelEvent(c *gin.Context) {
	a.onEvent(c, func(id models.EventID) error {
		return a.Service.CancelEvent(c.Request.Context(), exchangeOf(c).caller, id)
	})
}

func (a *API) onEvent(c *gin.Context, do func(models.EventID) error) {
	id, err := models.ParseEventID(c.Param("id"))
	if err == nil {
		err = do(id)
	}
	if err != nil {
		fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
}

var resultShape = shapeOf[wire.StepResult]()

// stepResult takes the verdict of a step that answers later. Its bearer token is the lease
// token that the step was given, not a caller's.
func (a *API) stepResult(c *gin.Context) {
	token, ok := bearer(c.Request)
	if !ok {
		fail(c, errUnauthenticated)
		return
	}
	id, err := models.ParseTaskID(c.Param("id"))
	if err != nil {
		fail(c, err)
		return
	}
	w, _, err := body[wire.StepResult](c, a.MaxBody, resultShape, "verdict")
	if err != nil {
		fail(c, err)
		return
	}
	v := models.StepVerdict(w.Verdict)
	switch v {
	case models.StepPass, models.StepBlock, models.StepDelete:
	default:
		fail(c, invalid("verdict", "is none of pass, block, delete"))
		return
	}
	if err := a.Service.StepResult(c.Request.Context(), id, token, models.StepAnswer{Verdict: v, Reason: models.CleanReason(w.Reason)}); err != nil {
		fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
}

func wireTask(k models.Task) wire.Task {
	out := wire.Task{ID: string(k.ID), Kind: string(k.Kind), Target: k.Target, FileID: string(k.FileID), State: string(k.State),
		RunAt: k.RunAt, Attempts: k.Attempts, MaxAttempts: k.MaxAttempts, Manual: k.Manual, LeaseOwner: k.LeaseOwner,
		LastError: k.LastError, CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt}
	if !k.LeaseUntil.IsZero() {
		out.LeaseUntil = new(time.Time)
		*out.LeaseUntil = k.LeaseUntil
	}
	return out
}

func wireEvent(e models.Event) wire.Event {
	sent := e.SentTo
	if sent == nil {
		sent = []string{}
	}
	return wire.Event{ID: string(e.ID), Type: string(e.Type), FileID: string(e.FileID), State: string(e.State), NotBefore: e.NotBefore,
		SentTo: sent, Attempts: e.Attempts, LastError: e.LastError, CreatedAt: e.CreatedAt, Data: e.Payload}
}
