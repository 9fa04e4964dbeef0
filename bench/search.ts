/**
 * How often the search finds the right tool and how long it takes, against plain BM25 in the same run, on questions and
 * tools by others. Where those cannot be fetched only the time is measured, on tools that are made here.
 */
import { ToolIndex } from '../worker/search/tool-index.ts';
import { PlainBm25 } from './plain-bm25.ts';
import type { Line, Measurement } from './table.ts';
import {
  type BenchQuestion,
  type BenchTool,
  functionCallingData,
  furtherTools,
  madeData,
  sealToolsData,
  type ToolData,
} from './tool-data.ts';
import { toolDataFolders } from './tool-data-folders.ts';

const SIZES = [100, 1_000, 10_000];
const MAX_QUESTIONS = 1_500;
const LIMIT = 10;

type Search = (query: string) => string[];

interface Measured {
  engine: string;
  /** At 1, at 5 and at 10. */
  recall: number[];
  p50Ms: number;
  p95Ms: number;
}

interface Comparison {
  data: string;
  toolCount: number;
  questionCount: number;
  builtMs: number;
  plain: Measured;
  ours: Measured;
}

const LARGEST = Math.max(...SIZES);
const MAX_P50_MS = 10;

export async function measureSearch(cacheDir: string): Promise<Measurement> {
  const folders = await toolDataFolders(cacheDir);
  if (!folders.ok) {
    const made = SIZES.map((size) => compared(madeData(LARGEST), size, []));
    const why = `recall of the search: not measured, the data sets cannot be fetched here: ${folders.reason}`;
    return { lines: made.filter(isLargest).map(timeLine), notes: [why, ...made.map(timeNote)] };
  }
  const { gorilla, sealTools } = folders;
  const sets = await Promise.all([functionCallingData(gorilla), sealToolsData(sealTools)]);
  const padding = [...sets.toReversed().flatMap(({ tools }) => tools), ...(await furtherTools(gorilla))];
  const all = sets.flatMap((data) => SIZES.map((size) => compared(data, size, padding)));
  return {
    lines: all.filter(isLargest).flatMap((one) => [timeLine(one), recallLine(one)]),
    notes: all.flatMap(recallNotes),
  };
}

function isLargest({ toolCount }: Comparison): boolean {
  return toolCount === LARGEST;
}

function timeLine({ data, toolCount, ours }: Comparison): Line {
  return {
    what: `search of ${toolCount} tools (${data}), p50 : its bound`,
    ours: `${ours.p50Ms.toFixed(2)} ms (p95 ${ours.p95Ms.toFixed(2)})`,
    against: `${MAX_P50_MS} ms`,
    ratio: ours.p50Ms / MAX_P50_MS,
    goal: { atMost: 1 },
  };
}

function recallLine({ data, toolCount, plain, ours }: Comparison): Line {
  const [own = 0, peer = 0] = [ours.recall[2], plain.recall[2]];
  return {
    what: `recall@10 of ${toolCount} tools (${data}) : plain BM25`,
    ours: own.toFixed(3),
    against: peer.toFixed(3),
    ratio: own / peer,
    goal: { atLeast: 1.05 },
  };
}

function timeNote({ data, toolCount, ours }: Comparison): string {
  return `search, ${data}, ${toolCount} tools: p50 ${ours.p50Ms.toFixed(2)} ms  p95 ${ours.p95Ms.toFixed(2)} ms`;
}

function recallNotes({ data, toolCount, questionCount, builtMs, plain, ours }: Comparison): string[] {
  return [
    `search, ${data}: ${toolCount} tools, ${questionCount} questions, index made in ${builtMs.toFixed(0)} ms`,
    ...[plain, ours].map(({ engine, recall, p50Ms, p95Ms }) => {
      const [one, five, ten] = recall.map((share) => share.toFixed(3));
      const times = `p50 ${p50Ms.toFixed(2)} ms  p95 ${p95Ms.toFixed(2)} ms`;
      return `  ${engine.padEnd(11)} recall@1 ${one}  @5 ${five}  @10 ${ten}  ${times}`;
    }),
  ];
}

/** The tools that are asked for come first, so that each size has its questions. */
function compared(data: ToolData, size: number, padding: readonly BenchTool[]): Comparison {
  const own = new Map(data.tools.map((tool) => [tool.id, tool]));
  const shuffled = spread(data.questions);
  const questions: BenchQuestion[] = [];
  const tools = new Map<string, BenchTool>();
  for (const question of shuffled) {
    const wanted = question.expected.flatMap((id) => own.get(id) ?? []);
    const more = wanted.filter(({ id }) => !tools.has(id)).length;
    if (wanted.length !== question.expected.length || tools.size + more > size) continue;
    for (const tool of wanted) tools.set(tool.id, tool);
    questions.push(question);
  }
  for (const tool of [...data.tools, ...padding]) {
    if (tools.size >= size) break;
    tools.set(tool.id, tool);
  }
  const asked = questions.slice(0, MAX_QUESTIONS);
  const index = new ToolIndex();
  const begun = performance.now();
  for (const tool of tools.values()) index.put(tool.id, { ...tool, title: '' });
  const builtMs = performance.now() - begun;
  const plain = new PlainBm25([...tools.values()]);
  const ours: Search = (query) =>
    index.search(query, { limit: LIMIT, accepts: () => true }).map(({ id }) => id);
  return {
    data: data.name,
    toolCount: tools.size,
    questionCount: asked.length,
    builtMs,
    plain: measure('plain BM25', (query) => plain.search(query, LIMIT), asked),
    ours: measure('sandgate', ours, asked),
  };
}

/** Of the tools that a question needs, the share that is among the first. */
function measure(engine: string, search: Search, questions: readonly BenchQuestion[]): Measured {
  const sums = [0, 0, 0];
  const times: number[] = [];
  for (const { text, expected } of questions) {
    const begun = performance.now();
    const found = search(text);
    times.push(performance.now() - begun);
    for (const [place, count] of [1, 5, 10].entries()) {
      const first = found.slice(0, count);
      const hits = expected.filter((id) => first.includes(id)).length;
      sums[place] = (sums[place] ?? 0) + hits / Math.min(expected.length, count);
    }
  }
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0;
  return { engine, recall: sums.map((sum) => sum / questions.length), p50Ms: at(0.5), p95Ms: at(0.95) };
}

/** In an order that mixes the files and is the same in every run. */
function spread<T>(entries: readonly T[]): T[] {
  const step = 7_919;
  return entries
    .map((_, index) => entries[(index * step) % entries.length])
    .filter((entry) => entry !== undefined);
}
