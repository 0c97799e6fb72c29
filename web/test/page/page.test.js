// The upload page as a person has it, in a real browser, on real S3 behind a line that
// can be made bad.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { after, before, describe, it } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { active, env, eventually, files, launch, sha256Of } from '../browser.js'

const MiB = 1 << 20
const ann = env('ANN_TOKEN')
const base = env('BERTH_URL')
const line = env('FAULTS')

let browser
before(async () => { browser = await launch() })
after(() => browser?.close())

/** Makes a file of random bytes. */
async function made(name, size) {
  const bytes = randomBytes(size)
  const path = `${env('SCRATCH')}/${name}`
  await writeFile(path, bytes)
  return { path, name, size, sum: createHash('sha256').update(bytes).digest('hex') }
}

/** Steers the line, or with nothing to set, reads what has been sent. */
async function faults(set) {
  const resp = await fetch(`${line}/faults`, set && { method: 'POST', body: JSON.stringify(set) })
  assert.ok(resp.ok)
  return resp.json()
}

const parts = (log) => log.filter((s) => s.status === 200).map((s) => s.part).sort((a, b) => a - b)

/** The page with a token. What it must never do, fails the test: errors, broken policy, strangers. */
async function open(t, { token = ann, collection = 'default', context: options = {} } = {}) {
  const context = await browser.newContext({ colorScheme: 'light', ...options })
  const page = await context.newPage()
  const bad = []
  const allowed = new Set([new URL(base).origin, new URL(line).origin])
  page.on('console', (m) => {
    // A refused or broken request is told here by the browser; the tests cause those.
    if (m.type() === 'error' && !/Failed to load resource|net::ERR_|^Access to XMLHttpRequest .* blocked by CORS policy/.test(m.text())) bad.push(m.text())
  })
  page.on('pageerror', (e) => bad.push(String(e)))
  page.on('dialog', (d) => d.accept())
  context.on('request', (r) => {
    const u = new URL(r.url())
    if (u.protocol.startsWith('http') && !allowed.has(u.origin)) bad.push(`request to ${u.origin}`)
  })
  t.after(async () => {
    await context.close()
    assert.deepEqual(bad, [])
  })
  await page.goto(`${base}/#token=${token}&collection=${collection}`)
  await page.getByRole('heading', { name: 'Upload files' }).waitFor()
  return page
}

const add = (page, list) => page.setInputFiles('#files', list)
const row = (page, name) => page.locator('#list > .row', { has: page.locator('.name', { hasText: name }) })
const state = (page, name, word, timeout = 60_000) => row(page, name).locator('.state', { hasText: word }).waitFor({ timeout })
const shot = (page, name) => page.screenshot({ path: `${env('ARTIFACTS')}/${name}.png` })

async function arrived(page, file) {
  await state(page, file.name, 'Active')
  const record = await active(ann, file.name)
  assert.equal(record.size, file.size)
  assert.equal(await sha256Of(ann, record), file.sum)
  return record
}

/** Waits until S3 has some parts. */
const sent = (n) => eventually(`${n} parts at S3`, async () => {
  const log = await faults()
  return parts(log).length >= n && log
})

describe('the page', () => {
  it('sends 300 MiB straight to S3, paused and resumed, and shows what happens', async (t) => {
    const file = await made('Harbour survey, final cut.mov', 300 * MiB)
    await faults({ rate: 60 * MiB, forget: true })
    const page = await open(t)
    assert.equal(new URL(page.url()).hash, '', 'the token stays in the address')
    assert.deepEqual(await page.evaluate(() => [Object.keys(localStorage), document.cookie]), [[], ''])
    await shot(page, 'page-empty-light')
    await add(page, [file.path])
    await state(page, file.name, 'Sending')
    await sent(3)
    await page.waitForFunction(() => /MB\/s.*left/.test(document.querySelector('.row .detail').textContent))
    await shot(page, 'page-sending-light')

    const button = page.getByRole('button', { name: `Pause: ${file.name}` })
    await button.focus()
    await page.keyboard.press('Enter')
    await state(page, file.name, 'Paused')
    await pause(700) // what was under way is given up at once
    const before = (await faults()).length
    await pause(700)
    assert.equal((await faults()).length, before, 'parts were sent in the pause')
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), `Resume: ${file.name}`)
    assert.match(await page.locator('#say').textContent(), /Paused/)
    await page.keyboard.press('Enter')
    await faults({ rate: 0 })
    const record = await arrived(page, file)
    assert.equal(record.checksum.type, 'composite')
    assert.deepEqual([...new Set(parts(await faults()))], Array.from({ length: 19 }, (_, i) => i + 1))
    assert.match(await page.locator('#say').textContent(), /Active/)

    const [got] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: `Download: ${file.name}` }).click(),
    ])
    assert.equal(got.suggestedFilename(), file.name)
    const hash = createHash('sha256')
    for await (const chunk of await got.createReadStream()) hash.update(chunk)
    assert.equal(hash.digest('hex'), file.sum)
  })

  it('goes on after a reload, with the parts that are missing only', async (t) => {
    const file = await made('reload.bin', 96 * MiB)
    await faults({ rate: 24 * MiB, forget: true })
    const page = await open(t)
    await add(page, [file.path])
    const first = parts(await sent(2))
    await page.reload()
    const left = page.locator('#left-list .row', { hasText: file.name })
    await left.waitFor()
    assert.match(await left.locator('.detail').textContent(), /[1-9]\d* % of .* has arrived/)
    await shot(page, 'page-unfinished-light')
    await faults({ forget: true })
    await add(page, [file.path])
    await arrived(page, file)
    const second = parts(await faults())
    for (const n of first) assert.ok(!second.includes(n), `part ${n} was sent again`)
    assert.ok(second.length <= 6 - first.length && second.length > 0, `${second} after ${first}`)
    assert.equal(await left.count(), 0)
    assert.equal((await files(ann)).filter((f) => f.name === file.name).length, 1)
  })

  it('goes on by itself after a reload where it has the file\'s handle', async (t) => {
    await faults({ rate: 16 * MiB, forget: true })
    const page = await open(t)
    // A handle as a drop or the file picker gives it, of the one kind that needs no hand.
    const sum = await page.evaluate(async () => {
      const { Client } = await import('/assets/client/index.js')
      const dir = await navigator.storage.getDirectory()
      const handle = await dir.getFileHandle('handle.bin', { create: true })
      const out = await handle.createWritable()
      const bytes = new Uint8Array(64 << 20)
      for (let i = 0; i < bytes.length; i += 65536) crypto.getRandomValues(bytes.subarray(i, i + 65536))
      await out.write(bytes)
      await out.close()
      new Client({ url: location.origin, owner: 'ann', token: sessionStorage.getItem('berth.token') }).upload(await handle.getFile(), { handle })
      return Array.from(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)), (b) => b.toString(16).padStart(2, '0')).join('')
    })
    const first = parts(await sent(1))
    await page.reload()
    await faults({ forget: true })
    await arrived(page, { name: 'handle.bin', size: 64 * MiB, sum })
    const second = parts(await faults())
    for (const n of first) assert.ok(!second.includes(n), `part ${n} was sent again`)
  })

  it('goes on after ten seconds without a network', async (t) => {
    const file = await made('offline.bin', 80 * MiB)
    await faults({ rate: 16 * MiB, forget: true })
    const page = await open(t)
    await add(page, [file.path])
    await sent(1)
    await faults({ dark: true })
    await page.context().setOffline(true)
    await state(page, file.name, 'No network')
    await pause(10_000)
    assert.equal(await row(page, file.name).getAttribute('data-state'), 'offline')
    await faults({})
    await page.context().setOffline(false)
    await arrived(page, file)
  })

  it('has parts signed again whose URLs ran out', async (t) => {
    const file = await made('expired.bin', 64 * MiB)
    await faults({ hold: 2, holdFor: 5000, forget: true }) // past its three seconds when S3 gets it
    const page = await open(t, { collection: 'hasty' })
    await add(page, [file.path])
    await arrived(page, file)
    const two = (await faults()).filter((s) => s.part === 2).map((s) => s.status)
    // Where S3 closes the connection on a refusal, the browser may have tried once more by itself.
    assert.ok(two.length > 1 && two.indexOf(200) === two.length - 1, `part 2 was answered ${two}`)
  })

  it('sends a part again that was damaged on the line', async (t) => {
    const file = await made('damaged.bin', 48 * MiB)
    await faults({ corrupt: 2, forget: true })
    const page = await open(t)
    await add(page, [file.path])
    await arrived(page, file)
    assert.deepEqual((await faults()).filter((s) => s.part === 2).map((s) => s.status), [400, 200])
  })

  it('sends a part again that the server misses at the end', async (t) => {
    const file = await made('swallowed.bin', 48 * MiB)
    await faults({ swallow: 3, forget: true })
    const page = await open(t)
    await add(page, [file.path])
    await arrived(page, file)
    assert.deepEqual((await faults()).filter((s) => s.part === 3).map((s) => s.status), [200, 200])
  })

  it('cancels', async (t) => {
    const file = await made('cancelled.bin', 48 * MiB)
    await faults({ rate: 8 * MiB, forget: true })
    const page = await open(t)
    await add(page, [file.path])
    await state(page, file.name, 'Sending')
    await page.getByRole('button', { name: `Cancel: ${file.name}` }).click()
    await state(page, file.name, 'Cancelled')
    await eventually('an aborted upload', async () => (await files(ann)).some((f) => f.name === file.name && f.state !== 'preparing'))
    await page.getByRole('button', { name: `Remove from list: ${file.name}` }).click()
    assert.equal(await page.evaluate(() => document.activeElement.id), 'choose', 'the focus is lost')
    await faults({})
  })

  it('leaves nothing when the tab is closed', async (t) => {
    const file = await made('closed.bin', 48 * MiB)
    await faults({ rate: 4 * MiB, forget: true })
    const page = await open(t, { collection: 'brief' })
    await add(page, [file.path])
    await state(page, file.name, 'Sending')
    await page.close()
    await faults({}) // the Go test waits for the rest
  })

  it('takes any name, no bytes at all, and a hundred files at once', async (t) => {
    await faults({ forget: true })
    const page = await open(t)
    const names = ['🚢⚓️ harbour 🇵🇹.txt', 'تقرير الميناء.txt', 'a+b c%20d.txt', `${'n'.repeat(496)}.txt`]
    const odd = names.map((name, i) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(`content ${i}`) }))
    odd.push({ name: 'zero.bin', mimeType: '', buffer: Buffer.alloc(0) })
    await add(page, odd)
    for (const o of odd) {
      const record = await active(ann, o.name)
      assert.equal(record.size, o.buffer.length)
      assert.equal(await sha256Of(ann, record), createHash('sha256').update(o.buffer).digest('hex'))
    }
    await page.locator('#total-text', { hasText: '5 of 5 files active' }).waitFor()
    for (const name of names.slice(0, 3)) {
      const [got] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('button', { name: `Download: ${name}`, exact: true }).click(),
      ])
      assert.equal(got.suggestedFilename(), name)
    }

    const many = Array.from({ length: 100 }, (_, i) => ({ name: `many-${i}.dat`, mimeType: 'application/octet-stream', buffer: randomBytes(1000 + i) }))
    const begun = Date.now()
    await add(page, many)
    await page.locator('#total-text', { hasText: '105 of 105 files active' }).waitFor({ timeout: 120_000 })
    t.diagnostic(`100 files active in ${Date.now() - begun} ms`)
    assert.equal((await files(ann)).filter((f) => f.name.startsWith('many-') && f.state === 'active').length, 100)
    assert.match(await page.locator('#say').textContent(), /105 of 105 files active/)
    await page.getByRole('button', { name: 'Clear finished' }).click()
    assert.equal(await page.locator('#list > .row').count(), 0)
  })

  it('answers at once for a file that is there already', async (t) => {
    const file = await made('twice.bin', 5 * MiB)
    await faults({ forget: true })
    const page = await open(t, { collection: 'instant' })
    await add(page, [file.path])
    await arrived(page, file)
    await page.getByRole('button', { name: `Remove from list: ${file.name}` }).click()
    await faults({ forget: true })
    await add(page, [file.path])
    await row(page, file.name).getByText('was here already').waitFor()
    assert.deepEqual(await faults(), [])
  })

  it('says in a sentence why a file is refused', async (t) => {
    const file = await made('large.bin', 2 * MiB)
    const page = await open(t, { token: env('GRANT_TOKEN'), collection: '' })
    await add(page, [file.path])
    await state(page, file.name, 'Failed')
    assert.match(await row(page, file.name).locator('.row-error').textContent(), /larger than is allowed\..*TOO_LARGE/)
    assert.equal(await page.locator('.collection').isVisible(), false, 'the grant names the collection')
    await shot(page, 'page-failed-light')
    // A grant to upload cannot read: it must be enough to see a file become active.
    await add(page, [{ name: 'fits.txt', mimeType: 'text/plain', buffer: Buffer.from('fits') }])
    await state(page, 'fits.txt', 'Active')
  })

  it('asks for a token, and for another when it has run out', async (t) => {
    const page = await open(t, { token: env('OLD_TOKEN') })
    await add(page, [{ name: 'late.txt', mimeType: 'text/plain', buffer: Buffer.from('late') }])
    const field = page.getByLabel('Access token')
    await field.waitFor()
    await field.fill('nonsense')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await page.getByRole('alert').getByText('does not look like').waitFor()
    await shot(page, 'page-sign-in-light')
    await field.fill(`${base}/#token=${ann}`)
    await page.getByRole('button', { name: 'Continue', exact: true }).click()
    await state(page, 'late.txt', 'Active')
    await page.getByRole('button', { name: 'Sign out' }).click()
    await field.waitFor()
    assert.equal(await page.evaluate(() => sessionStorage.length), 0)
  })

  it('does not go on with another owner\'s upload', async (t) => {
    const file = await made('whose.bin', 112 * MiB) // seven parts, four at once
    await faults({ rate: 32 * MiB, forget: true })
    const page = await open(t)
    await add(page, [file.path])
    await sent(1)
    await page.goto('about:blank')
    await page.goto(`${base}/#token=${env('BOB_TOKEN')}`)
    await page.getByText('bob').waitFor()
    await pause(500)
    assert.equal(await page.locator('#left').isVisible(), false)
    await faults({})
    await add(page, [file.path])
    await state(page, file.name, 'Active')
    assert.equal((await files(env('BOB_TOKEN'))).length, 1)
    await page.goto('about:blank')
    await page.goto(`${base}/#token=${ann}`)
    await page.locator('#left-list .row', { hasText: file.name }).waitFor() // hers is still there
    for (const f of (await files(ann)).filter((x) => x.name === file.name)) assert.notEqual(f.state, 'active')
    await page.getByRole('button', { name: `Discard: ${file.name}` }).click()
    await page.locator('#left').waitFor({ state: 'hidden' }) // and the Go test sees that it is aborted
  })

  it('looks right in the dark and on a phone', async (t) => {
    const film = await made('Interview with the harbour master.mp4', 64 * MiB)
    const raw = await made('DSC_0412.NEF', 40 * MiB)
    for (const [name, options] of [
      ['dark', { colorScheme: 'dark' }],
      ['phone', { viewport: { width: 375, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true }],
      ['phone-dark', { viewport: { width: 375, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: 'dark' }],
    ]) {
      await faults({ rate: 12 * MiB, forget: true })
      const page = await open(t, { context: options })
      await add(page, [{ name: 'Zusammenfassung 2026.pdf', mimeType: 'application/pdf', buffer: randomBytes(90_000) }])
      await state(page, 'Zusammenfassung', 'Active')
      await add(page, [film.path, raw.path])
      await state(page, raw.name, 'Sending')
      await page.getByRole('button', { name: `Pause: ${raw.name}` }).click()
      await page.waitForFunction(() => /MB\/s.*left/.test(document.querySelector('.row .detail').textContent))
      await shot(page, `page-sending-${name}`)
      const wide = await page.evaluate((w) => document.documentElement.scrollWidth - w, page.viewportSize().width)
      assert.ok(wide <= 0, `${name}: ${wide} pixels too wide`)
      for (const n of [film.name, raw.name]) await page.getByRole('button', { name: `Cancel: ${n}` }).click()
      for (const n of [film.name, raw.name]) await state(page, n, 'Cancelled')
      await page.close() // what the server was asked outlives the page, not the profile
      await eventually('both aborted', async () => !(await files(ann)).some((f) => [film.name, raw.name].includes(f.name) && f.state === 'preparing'))
    }
    await faults({})
  })
})

describe('the console', () => {
  it('shows files and their history, and deletes one', async (t) => {
    await faults({ forget: true })
    const page = await open(t)
    await add(page, [{ name: 'kept <b>.txt', mimeType: 'text/plain', buffer: Buffer.from('kept') }, { name: 'gone.txt', mimeType: 'text/plain', buffer: Buffer.from('gone') }])
    await state(page, 'kept <b>.txt', 'Active')
    await state(page, 'gone.txt', 'Active')
    await page.goto(`${base}/console`)
    const line = (name) => page.locator('#files-rows tr', { has: page.locator('td', { hasText: name }) })
    await line('gone.txt').locator('.state', { hasText: 'active' }).waitFor()
    await page.getByRole('button', { name: 'History: kept <b>.txt' }).click()
    await page.locator('#timeline-list', { hasText: 'file preparing → active' }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Delete: gone.txt' }).click()
    await page.keyboard.press('Escape') // changed their mind
    assert.equal(await line('gone.txt').locator('.state').textContent(), 'active')
    await page.getByRole('button', { name: 'Delete: gone.txt' }).click()
    await page.getByRole('button', { name: 'Delete', exact: true }).click()
    await line('gone.txt').locator('.state', { hasText: 'delet' }).waitFor()
    await shot(page, 'console-light')
    const bob = await open(t, { token: env('BOB_TOKEN') })
    await bob.goto(`${base}/console`)
    await bob.locator('#files-rows tr, #files-empty:not([hidden])').first().waitFor()
    assert.equal(await bob.locator('#files-rows tr', { hasText: 'kept <b>' }).count(), 0)
    const page2 = await browser.newContext().then((c) => (t.after(() => c.close()), c.newPage()))
    await page2.goto(`${base}/console`)
    await page2.getByRole('alert').getByText('Sign in').waitFor()
  })
})

describe('the client', () => {
  it('sends the CRCs where a collection wants them, declared whole or by parts', async (t) => {
    await faults({ forget: true })
    const page = await open(t)
    const got = await page.evaluate(async () => {
      const { Client } = await import('/assets/client/index.js')
      const client = new Client({ token: sessionStorage.getItem('berth.token') })
      const bytes = new Uint8Array(40 << 20)
      for (let i = 0; i < bytes.length; i += 65536) crypto.getRandomValues(bytes.subarray(i, i + 65536))
      const out = []
      for (const collection of ['crc64', 'crc32c']) {
        for (const [size, declare] of [[1000, false], [40 << 20, false], [40 << 20, true]]) {
          const file = new File([bytes.subarray(0, size)], `${collection}-${size}-${declare}`)
          const { file: record } = await client.upload(file, { collection, declare }).done
          out.push([record.state, record.checksum.algorithm, record.checksum.type, record.checksum.declared])
        }
      }
      return out
    })
    assert.deepEqual(got, ['crc64nvme', 'crc32c'].flatMap((a) => Array(3).fill(['active', a, 'full_object', true])))
  })

  it('is told to stop by a signal, and defers a commit', async (t) => {
    await faults({ rate: 8 * MiB, forget: true })
    const page = await open(t)
    const got = await page.evaluate(async () => {
      const { Client } = await import('/assets/client/index.js')
      const client = new Client({ token: sessionStorage.getItem('berth.token') })
      const stop = new AbortController()
      const u = client.upload(new File([new Uint8Array(30 << 20)], 'stopped.bin'), { signal: stop.signal })
      await new Promise((ok) => u.addEventListener('progress', ok, { once: true }))
      stop.abort()
      const code = await u.done.then(() => 'done', (e) => e.code)
      const session = await client.api.upload(u.upload.id)
      const deferred = await client.upload(new File(['draft'], 'draft.txt'), { commit: 'deferred' }).done
      const file = await client.api.commit(deferred.upload.id, { name: 'final.txt' })
      return { code, state: session.state, deferred: deferred.upload.state, file: deferred.file, name: file.name, active: file.state }
    })
    assert.deepEqual(got, { code: 'CANCELLED', state: 'aborted', deferred: 'completed', file: null, name: 'final.txt', active: 'active' })
    await faults({})
  })
})

describe('the headers', () => {
  it('let pages load and call nothing that is not ours', async () => {
    const resp = await fetch(base)
    const h = resp.headers
    const policy = Object.fromEntries(h.get('content-security-policy').split('; ').map((d) => [d.split(' ')[0], d.split(' ').slice(1)]))
    assert.deepEqual(policy, {
      'default-src': ["'none'"], 'script-src': ["'self'"], 'style-src': ["'self'"], 'connect-src': ["'self'", line],
      'worker-src': ["'self'"], 'img-src': ["'self'", 'data:'], 'form-action': ["'none'"], 'base-uri': ["'none'"], 'frame-ancestors': ["'none'"],
    })
    assert.equal(h.get('x-content-type-options'), 'nosniff')
    assert.equal(h.get('referrer-policy'), 'no-referrer')
    assert.equal(h.get('cross-origin-opener-policy'), 'same-origin')
    assert.match(h.get('permissions-policy'), /camera=\(\)/)
    const js = await fetch(`${base}/assets/client/index.js`)
    assert.match(js.headers.get('content-type'), /^text\/javascript/)
    const again = await fetch(`${base}/assets/client/index.js`, { headers: { 'if-none-match': js.headers.get('etag') } })
    assert.equal(again.status, 304)
    assert.equal((await fetch(`${base}/assets/client/nothing.js`)).status, 404)
    assert.equal((await fetch(`${base}/assets/page/../../web.go`)).status, 404)
  })

  it('stop a page that tries', async (t) => {
    const context = await browser.newContext()
    t.after(() => context.close())
    const page = await context.newPage()
    await page.goto(base)
    const [elsewhere, inline] = await page.evaluate(async () => {
      const elsewhere = await fetch('http://127.0.0.1:9/').then(() => 'called', () => 'refused')
      const s = document.createElement('script')
      s.textContent = 'window.ran = true'
      document.head.append(s)
      return [elsewhere, window.ran === undefined ? 'refused' : 'ran']
    })
    assert.deepEqual([elsewhere, inline], ['refused', 'refused'])
  })
})
