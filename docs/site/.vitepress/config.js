/**
 * The site of the documentation: the pages of `docs` as they are, each also as Markdown, and `llms.txt`. It has no text of
 * its own. A dead link fails the build.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, normalize, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { allPages, indexedPages, llmsText } from '../llms.js'

const docs = fileURLToPath(new URL('../..', import.meta.url))

export default defineConfig({
  title: 'Rillflow',
  description: 'Documents, events, projections and durable workflows for TypeScript, on PostgreSQL',
  srcDir: '..',
  srcExclude: ['site/**'],
  rewrites: { 'README.md': 'index.md' },
  cleanUrls: true,
  markdown: { html: false, config: dropLinksToSources },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    sidebar: sidebar(),
  },
  buildEnd({ outDir }) {
    for (const page of allPages()) {
      mkdirSync(dirname(join(outDir, page)), { recursive: true })
      cpSync(join(docs, page), join(outDir, page))
    }
    writeFileSync(join(outDir, 'llms.txt'), llmsText())
  },
})

/** The folders of the index, one group each. */
function sidebar() {
  const groups = new Map([['.', 'Begin']])
  for (const path of indexedPages()) if (!groups.has(dirname(path))) groups.set(dirname(path), dirname(path))
  return [...groups].map(([folder, name]) => ({
    text: `${name[0].toUpperCase()}${name.slice(1)}`,
    collapsed: folder !== '.' && folder !== 'guides',
    items: indexedPages()
      .filter(path => dirname(path) === folder)
      .map(path => ({ text: titleOf(path), link: `/${path.replace(/\.md$/, '')}` })),
  }))
}

function titleOf(path) {
  return /^# (.*)$/m.exec(readFileSync(join(docs, path), 'utf8'))[1].replaceAll('`', '')
}

/** Links to tests, examples and sources lead out of the site: their text stays. A test checks that they lead somewhere. */
function dropLinksToSources(md) {
  md.core.ruler.push('links-to-sources', ({ tokens, env }) => {
    for (const { children } of tokens) {
      let isDropped = false
      for (const token of children ?? []) {
        if (token.type === 'link_open') isDropped = leavesSite(token.attrGet('href'), env.path ?? '')
        if (isDropped && /^link_(open|close)$/.test(token.type))
          Object.assign(token, { type: 'text', content: '', tag: '' })
      }
    }
  })
}

function leavesSite(href, page) {
  if (/^(https?:|#|\/)/.test(href)) return false
  const path = relative(docs, normalize(join(dirname(page), href.replace(/#.*/, ''))))
  return path.startsWith('..') || !/\.md$|\/$|^$/.test(path)
}
