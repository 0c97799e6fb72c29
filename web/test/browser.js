// What all tests in the browser share: the browser, bundles for its pages, and the
// server's own word on what became of a file.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { build } from 'esbuild'
import { chromium } from 'playwright-core'

/** An environment variable that the Go test sets. */
export function env(name) {
  const value = process.env[name]
  assert.ok(value, `${name} is not set: the Go test in web/ runs these scripts`)
  return value
}

/** A browser of its own, with a fresh profile, which calls nobody on its own account. */
export function launch() {
  return chromium.launch({
    executablePath: env('CHROMIUM'),
    headless: true,
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync',
    ],
  })
}

/** Bundles one file for a page. */
export function bundle(entry, outfile) {
  return build({ entryPoints: [entry], outfile, bundle: true, format: 'iife', target: 'chrome120', logLevel: 'error' })
}

/** Calls the native API and returns its JSON. */
export async function api(path, token) {
  const resp = await fetch(env('BERTH_URL') + path, { headers: { authorization: `Bearer ${token}` } })
  const body = await resp.json()
  assert.ok(resp.ok, `${path}: ${resp.status} ${JSON.stringify(body)}`)
  return body
}

/** All of the caller's files, in whatever state. */
export async function files(token) {
  const all = []
  let cursor = ''
  do {
    const page = await api(`/v1/files?limit=1000${cursor && `&cursor=${cursor}`}`, token)
    all.push(...page.files)
    cursor = page.next_cursor
  } while (cursor)
  return all
}

/** Waits until look returns something, and returns that. */
export async function eventually(what, look, seconds = 30) {
  const until = Date.now() + seconds * 1000
  for (;;) {
    const found = await look()
    if (found) return found
    assert.ok(Date.now() < until, `not within ${seconds} s: ${what}`)
    await pause(50)
  }
}

/** The one active file of that name. */
export function active(token, name) {
  return eventually(`an active ${name.slice(0, 40)}`, async () => {
    const found = (await files(token)).filter((f) => f.name === name && f.state === 'active')
    assert.ok(found.length < 2, `${found.length} active files are called ${name}`)
    return found[0]
  })
}

/** The SHA-256 of a file's bytes as the store gives them, in hexadecimal. */
export async function sha256Of(token, file) {
  const { url } = await api(`/v1/files/${file.id}/url`, token)
  const resp = await fetch(url)
  assert.equal(resp.status, 200)
  return createHash('sha256').update(Buffer.from(await resp.arrayBuffer())).digest('hex')
}
