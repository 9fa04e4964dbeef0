/**
 * XAgent's WebEnv. A page is read by a program in the session, so that its network, and nothing else, says which pages there
 * are. The search is a tool of the tenant's own.
 */
import * as z from 'zod';
import type { Outcome } from '../../../shared/errors.ts';
import type { Execution } from '../../../shared/execution.ts';
import type { OwnSession } from '../../calls/own-session.ts';
import { unwrap } from '../../middleware/refusal.ts';
import { SAFE } from '../../objects/object-calls.ts';
import { reply } from '../../routing/reply.ts';
import type { Exchange } from '../../routing/route.ts';
import { detailReply } from '../adapter-route.ts';
import { freshPython } from '../fresh-process.ts';
import { runCall } from '../run-call.ts';
import { failedReply } from './response.ts';

export const SEARCH_TOOL = 'bing_search';
const MAX_FOUND = 10;
const FAILED = 500;
const TIMEOUT_MS = 60_000;
const NO_NETWORK =
  'this session has no network: make it with `network` ({"allow": ["example.com"]}), in the body of /get_cookie or by POST /v1/sessions';
const NO_SEARCH = `there is no search engine here: register a tool ${SEARCH_TOOL} {query, region} that gives a list of {name, snippet, url}`;

export interface WebPlace {
  exchange: Exchange<'tenant'>;
  session: OwnSession;
}

const FoundSchema = z.array(z.looseObject({ name: z.string(), snippet: z.string(), url: z.string() }));

export const PageUrlSchema = z
  .string()
  .max(2_048)
  .regex(/^https?:\/\/[^\s]+$/i);

export async function browse(place: WebPlace, url: string): Promise<Response> {
  if (!(await reachesNetwork(place.session))) return detailReply(FAILED, NO_NETWORK);
  const execution = unwrap(await page(place, url));
  return failedReply(execution) ?? reply(200, execution.stdout);
}

export async function searchAndBrowse(
  place: WebPlace,
  search: { query: string; region: string | undefined; count: number },
): Promise<Response> {
  const { exchange, session } = place;
  const { query, region, count } = search;
  if (!(await reachesNetwork(session))) return detailReply(FAILED, NO_NETWORK);
  const args = { query, ...(region === undefined ? {} : { region }) };
  const searched = await runCall(exchange, session, { name: SEARCH_TOOL, arguments: args });
  if (!searched.ok && searched.code === 'tool_not_found') return detailReply(FAILED, NO_SEARCH);
  const execution = unwrap(searched);
  const failed = failedReply(execution);
  if (failed !== undefined) return failed;
  const found = FoundSchema.safeParse(execution.structured);
  if (!found.success) return detailReply(FAILED, NO_SEARCH);
  const results: object[] = [];
  for (const { name, snippet, url } of found.data.slice(0, Math.min(count, MAX_FOUND))) {
    results.push({ name, snippet, page: await pageText(place, url) });
  }
  return reply(200, results);
}

/** One page that cannot be read is no reason to give none. */
async function pageText(place: WebPlace, url: string): Promise<string> {
  if (!PageUrlSchema.safeParse(url).success) return 'the address is not one of http or https';
  const read = await page(place, url);
  if (!read.ok) return read.detail;
  return read.value.status === 'succeeded' ? read.value.stdout : read.value.stderr;
}

export async function reachesNetwork(session: OwnSession): Promise<boolean> {
  const { network } = unwrap(await session.call((stub) => stub.describe(session.caller), SAFE));
  return network !== null;
}

function page({ exchange, session }: WebPlace, url: string): Promise<Outcome<Execution>> {
  const code = freshPython(`${READ_PAGE}\nshow(${JSON.stringify(url.toWellFormed())})\n`);
  return runCall(exchange, session, { name: 'python', arguments: { code }, timeoutMs: TIMEOUT_MS });
}

/** With what every Python has. The proxy of the session is in its environment. */
const READ_PAGE = `
import html.parser, sys, urllib.error, urllib.parse, urllib.request

MAX_BYTES = 4 * 1024 * 1024
HIDDEN = {"script", "style", "noscript", "template", "head"}
INLINE = {"a", "abbr", "b", "code", "em", "i", "small", "span", "strong", "sub", "sup", "u"}

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.text, self.title, self.links, self.open = [], [], [], []
        self.in_link = False

    def handle_starttag(self, tag, attributes):
        if tag in HIDDEN or tag == "title":
            self.open.append(tag)
        if tag == "body":
            self.open.clear()
        if tag == "a":
            self.links.append([dict(attributes).get("href") or "", ""])
            self.in_link = True
        if tag not in INLINE:
            self.text.append("\\n")

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass
        if tag == "a":
            self.in_link = False
        if tag not in INLINE:
            self.text.append("\\n")

    def handle_data(self, data):
        if "title" in self.open:
            self.title.append(data)
        elif not self.open:
            self.text.append(data)
            if self.in_link:
                self.links[-1][1] += data

def lines(text):
    return "\\n".join(line for line in (" ".join(line.split()) for line in text.split("\\n")) if line)

def show(url):
    request = urllib.request.Request(url, headers={"User-Agent": "Mozilla/5.0 (compatible; sandgate)"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            kind, charset = answer.headers.get_content_type(), answer.headers.get_content_charset("utf-8")
            body, url = answer.read(MAX_BYTES), answer.geturl()
    except urllib.error.HTTPError as error:
        sys.exit(f"{url}: {error.code} {error.reason}")
    except (urllib.error.URLError, OSError) as error:
        sys.exit(f"{url}: {getattr(error, 'reason', error)}")
    try:
        text = body.decode(charset, "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    if "html" not in kind:
        if not (kind.startswith("text/") or "json" in kind or "xml" in kind):
            sys.exit(f"{url}: {kind} is not text")
        print(text)
        return
    page = Page()
    page.feed(text)
    page.close()
    print(lines("".join(page.title + ["\\n"] + page.text)))
    links = {}
    for place, label in page.links:
        address = urllib.parse.urljoin(url, place)
        if address.startswith("http") and label.strip():
            links.setdefault(address, lines(label).replace("\\n", " "))
    if links:
        print("\\nLinks:")
        for address, label in links.items():
            print(f"{label} ({address})")
`;
