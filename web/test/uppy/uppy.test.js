// Uppy 5 and 6 as npm has them, against Companion's S3 API of Berth.
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { after, before, describe, it } from 'node:test'
import { active, bundle, env, eventually, files, launch, sha256Of } from '../browser.js'
import { install } from './inpage.js'

const annToken = env('ANN_TOKEN')
const app = env('APP_URL')
const s3 = env('S3_URL')
const MiB = 1 << 20

const versions = { 5: 'five', 6: 'six' }
const options = {
  5: (endpoint) => ({ endpoint }),
  6: (companionEndpoint) => ({ companionEndpoint }),
}

let browser
before(async () => {
  browser = await launch()
  for (const [version, dir] of Object.entries(versions)) {
    await bundle(`uppy/${dir}/page.js`, `${env('PAGES')}/uppy${version}.js`)
    await writeFile(`${env('PAGES')}/uppy${version}.html`, `<!doctype html><meta charset="utf-8"><title>Uppy ${version}</title><script src="uppy${version}.js"></script>`)
  }
})
after(() => browser?.close())

/** A page of the application with Uppy on it, and what the tests use of it. */
async function open(t, version, { grant = env('ANN_GRANT'), endpoint = `${env('BERTH_URL')}/uppy/${grant}`, multipart = true, origin = app, slow = false } = {}) {
  const context = await browser.newContext()
  t.after(() => context.close())
  const page = await context.newPage()
  const said = []
  page.on('console', (m) => said.push(m.text()))
  page.on('pageerror', (e) => said.push(String(e)))
  await page.goto(`${origin}/uppy${version}.html`)
  await page.evaluate(install, { multipart, options: options[version](endpoint) })
  if (slow) {
    const cdp = await context.newCDPSession(page)
    await cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 8 * MiB })
    page.fast = () => cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 })
  }
  page.said = said
  return { context, page }
}

const add = (page, list) => page.evaluate((l) => window.add(l), list)
const upload = (page) => page.evaluate(() => window.upload())
const sum = (page, name) => page.evaluate((n) => window.sha256(n), name)

/** All of Uppy's files arrived, and the server has exactly their bytes. */
async function arrived(page, result, names) {
  assert.deepEqual(result.failed, [], page.said.join('\n'))
  assert.equal(result.successful.length, names.length)
  for (const name of names) {
    const file = await active(annToken, name)
    assert.equal(await sha256Of(annToken, file), await sum(page, name), name)
    assert.equal(file.checksum.declared, false)
  }
}

for (const version of Object.keys(versions)) {
  for (const multipart of [true, false]) {
    const tag = `${version}${multipart ? 'm' : 's'}`
    describe(`Uppy ${version}, shouldUseMultipart: ${multipart}`, () => {
      it('uploads a small and a large file', async (t) => {
        const { page } = await open(t, version, { multipart })
        const names = [`small-${tag}.bin`, `large-${tag}.bin`]
        await add(page, [{ name: names[0], size: 100_000 }, { name: names[1], size: 21 * MiB + 7 }])
        const result = await upload(page)
        await arrived(page, result, names)
        const [small] = (await files(annToken)).filter((f) => f.name === names[0])
        assert.equal(small.size, 100_000)
        if (multipart) for (const { location } of result.successful) assert.match(location, /^http:\/\/127\.0\.0\.1:\d+\/v1\/files\/fil_[0-9a-f-]+\/content$/)
      })

      it('pauses and goes on', async (t) => {
        const { page } = await open(t, version, { multipart, slow: true })
        const name = `paused-${tag}.bin`
        await add(page, [{ name, size: 20 * MiB }])
        const signs = []
        page.on('request', (r) => signs.push(r.url()))
        await page.evaluate(() => window.begin())
        await page.evaluate(() => window.pauseAfter(3 * 1024 * 1024))
        const first = await page.evaluate(() => window.progress())
        assert.ok(first > 0 && first < 20 * MiB, `paused at ${first}`)
        const before = signs.length
        await page.waitForTimeout(700)
        assert.equal(signs.length, before, 'requests while paused')
        await page.fast()
        const result = await page.evaluate(() => window.resume())
        await arrived(page, result, [name])
        assert.equal((await files(annToken)).filter((f) => f.name === name && f.state === 'active').length, 1)
      })

      it('recovers from faults, by itself or when told to retry', async (t) => {
        const { page } = await open(t, version, { multipart })
        const name = `faulty-${tag}.bin`
        let sends = 0
        // 503 at first, which passes by itself; then a refusal, which does not.
        await page.route((url) => url.href.startsWith(s3), async (route) => {
          if (!['PUT', 'POST'].includes(route.request().method())) return route.continue()
          sends++
          const cors = { 'access-control-allow-origin': '*' }
          if (sends === 1) return route.fulfill({ status: 503, headers: cors, body: '' })
          if (sends === 3) return route.fulfill({ status: 403, headers: cors, body: '<Error><Code>AccessDenied</Code></Error>' })
          return route.continue()
        })
        await add(page, [{ name, size: multipart ? 16 * MiB : MiB }])
        let result = await upload(page)
        // Uppy 5 never sends a form again by itself, and Uppy 6 does.
        if (multipart || version === '5') {
          assert.equal(result.failed.length, 1, 'the refusal is final')
          result = await page.evaluate(() => window.retry())
        }
        await arrived(page, result, [name])
        assert.ok(sends >= 2)
      })

      it('cancels, and nothing stays', async (t) => {
        const { page } = await open(t, version, { multipart, slow: true })
        const name = `cancelled-${tag}.bin`
        await add(page, [{ name, size: 20 * MiB }])
        const gone = multipart && page.waitForResponse((r) => r.request().method() === 'DELETE')
        await page.evaluate(() => window.begin())
        await page.evaluate(() => window.cancelAfter(2 * 1024 * 1024))
        if (multipart) {
          const resp = await gone
          assert.equal(resp.status(), 200)
          if (version === '5') assert.deepEqual(await resp.json(), {}) // Uppy 6 leaves the body alone
          await eventually('a failed file', async () => (await files(annToken)).find((f) => f.name === name && f.state === 'failed'))
        }
        assert.equal((await files(annToken)).filter((f) => f.name === name && f.state === 'active').length, 0)
      })

      it('sends files of any name, and an empty one', async (t) => {
        const { page } = await open(t, version, { multipart })
        const names = [`📦🚢 ${tag}.txt`, `ملف عربي ${tag}.pdf`, `a+b c%20d ${tag}.txt`, `${tag}${'x'.repeat(498)}`, `${tag}${'ش'.repeat(494)}.txt`, `empty ${tag}`]
        assert.equal([...names[3]].length, 500)
        assert.equal([...names[4]].length, 500)
        await add(page, names.map((name) => ({ name, size: name.startsWith('empty') ? 0 : 1234 })))
        await arrived(page, await upload(page), names)
        const [empty] = (await files(annToken)).filter((f) => f.name === `empty ${tag}`)
        assert.equal(empty.size, 0)
      })

      it('sends a hundred files at once', async (t) => {
        const { page } = await open(t, version, { multipart })
        const names = Array.from({ length: 100 }, (_, i) => `many-${tag}-${i}.bin`)
        await add(page, names.map((name, i) => ({ name, size: 1000 + i })))
        const result = await upload(page)
        assert.deepEqual(result.failed, [])
        await eventually('a hundred active files', async () => {
          const got = (await files(annToken)).filter((f) => f.name.startsWith(`many-${tag}-`) && f.state === 'active')
          return got.length === 100 && new Set(got.map((f) => f.size)).size === 100
        })
      })

      it('is told what the grant does not allow', async (t) => {
        const { page } = await open(t, version, { multipart, grant: env('ANN_SMALL') })
        await add(page, [{ name: `over-${tag}.bin`, size: 2001 }])
        const result = await upload(page)
        assert.equal(result.failed.length, 1)
        if (multipart && version === '5') assert.match(result.failed[0].error, /at most 2000 bytes/)
      })
    })
  }

  describe(`Uppy ${version}`, () => {
    it('gets the same answer when the first to complete is lost', async (t) => {
      const { page } = await open(t, version)
      const name = `lost-${version}.bin`
      let lost = 0
      await page.route(/\/complete\?/, async (route) => {
        if (lost++) return route.continue()
        await route.fetch()
        return route.abort('connectionreset')
      })
      await add(page, [{ name, size: 6 * MiB }])
      assert.equal((await upload(page)).failed.length, 1)
      const result = await page.evaluate(() => window.retry())
      assert.deepEqual(result.failed, [])
      const got = (await files(annToken)).filter((f) => f.name === name && f.state === 'active')
      // Uppy 5 gives its upload up on any error and begins another.
      assert.equal(got.length, version === '5' ? 2 : 1)
      for (const f of got) assert.equal(await sha256Of(annToken, f), await sum(page, name))
    })

    for (const multipart of [true, false]) {
      it(`takes a cookie from a page of the same origin (multipart: ${multipart})`, async (t) => {
        const { context, page } = await open(t, version, { endpoint: `${app}/uppy`, multipart })
        await context.addCookies([{ name: 'berth_token', value: annToken, url: `${app}/uppy`, httpOnly: true, sameSite: 'Strict' }])
        const name = `cookie-${version}-${multipart}.bin`
        await add(page, [{ name, size: 6 * MiB }])
        await arrived(page, await upload(page), [name])
      })
    }

    it('gets nothing with a cookie from a page elsewhere', async (t) => {
      const elsewhere = app.replace('localhost', '127.0.0.1')
      const { context, page } = await open(t, version, { endpoint: `${app}/uppy`, origin: elsewhere })
      await context.addCookies([{ name: 'berth_token', value: annToken, url: `${app}/uppy`, httpOnly: true, sameSite: 'None', secure: true }])
      const name = `elsewhere-${version}.bin`
      await add(page, [{ name, size: 1000 }])
      assert.equal((await upload(page)).failed.length, 1)
      // Also without reading the answer.
      const seen = page.waitForResponse((r) => r.url().includes('/s3/params'))
      await page.evaluate(([url, n]) => fetch(`${url}/uppy/s3/params?filename=${n}`, { mode: 'no-cors', credentials: 'include' }), [app, name])
      assert.ok([401, 403].includes((await seen).status()))
      assert.equal((await files(annToken)).filter((f) => f.name === name).length, 0)
    })

    it("does nothing to another's upload", async (t) => {
      const { page } = await open(t, version, { slow: true })
      const name = `mine-${version}.bin`
      await add(page, [{ name, size: 20 * MiB }])
      const create = page.waitForResponse((r) => r.url().endsWith('/s3/multipart'))
      await page.evaluate(() => window.begin())
      const { key, uploadId } = await (await create).json()
      await page.evaluate(() => window.pauseAfter(1))
      const statuses = await page.evaluate(async ([base, id, key]) => {
        const at = (tail, more = '') => `${base}/s3/multipart/${encodeURIComponent(id)}${tail}?key=${encodeURIComponent(key)}${more}`
        const json = { 'content-type': 'application/json' }
        const got = await Promise.all([
          fetch(at('')), fetch(at('/1')), fetch(at('/batch', '&partNumbers=1,2')),
          fetch(at('/complete'), { method: 'POST', headers: json, body: JSON.stringify({ parts: [{ PartNumber: 1, ETag: 'x' }] }) }),
          fetch(at(''), { method: 'DELETE' }),
        ])
        return got.map((r) => r.status)
      }, [`${env('BERTH_URL')}/uppy/${env('EVE_GRANT')}`, uploadId, key])
      assert.deepEqual(statuses, [404, 404, 404, 404, 404])
      await page.fast()
      await arrived(page, await page.evaluate(() => window.resume()), [name])
    })
  })
}
