/**
 * `node bench/search.ts --gorilla DIR --seal-tools DIR`: how often the search finds the right tool, and how long it
 * takes, against plain BM25 in the same run. DIR are clones of ShishirPatil/gorilla and fairyshine/Seal-Tools; without
 * them only the time is measured, on tools that are made here.
 */
import { parseArgs } from 'node:util';
import { ToolIndex } from '../worker/search/tool-index.ts';
import { PlainBm25 } from './plain-bm25.ts';
import {
  type BenchQuestion,
  type BenchTool,
  functionCallingData,
  furtherTools,
  madeData,
  sealToolsData,
  type ToolData,
} from './tool-data.ts';

const SIZES = [100, 1_000, 10_000];
const MAX_QUESTIONS = 1_500;
const LIMIT = 10;

type Search = (query: string) => string[];

interface Line {
  engine: string;
  recall: number[];
  p50Ms: number;
  p95Ms: number;
}

const { values } = parseArgs({ options: { gorilla: { type: 'string' }, 'seal-tools': { type: 'string' } } });
const { gorilla, 'seal-tools': sealToolsFolder } = values;
const made = madeData(Math.max(...SIZES));
if (gorilla === undefined || sealToolsFolder === undefined) {
  console.log('without --gorilla DIR and --seal-tools DIR: made tools, for the time only');
  for (const size of SIZES) report(made, size, []);
} else {
  const [functionCalling, sealTools, further] = await Promise.all([
    functionCallingData(gorilla),
    sealToolsData(sealToolsFolder),
    furtherTools(gorilla),
  ]);
  const padding = [...sealTools.tools, ...functionCalling.tools, ...further];
  for (const data of [functionCalling, sealTools]) for (const size of SIZES) report(data, size, padding);
}

/** The tools that are asked for come first, so that each size has its questions. */
function report(data: ToolData, size: number, padding: readonly BenchTool[]): void {
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
  const lines = [
    measure('plain BM25', (query) => plain.search(query, LIMIT), asked),
    measure('sandgate', ours, asked),
  ];
  console.log(
    `\n${data.name}: ${tools.size} tools, ${asked.length} questions, index made in ${builtMs.toFixed(0)} ms`,
  );
  for (const { engine, recall, p50Ms, p95Ms } of lines) {
    const [one, five, ten] = recall.map((share) => share.toFixed(3));
    const times = `p50 ${p50Ms.toFixed(2)} ms  p95 ${p95Ms.toFixed(2)} ms`;
    console.log(`  ${engine.padEnd(11)} recall@1 ${one}  @5 ${five}  @10 ${ten}  ${times}`);
  }
}

/** Of the tools that a question needs, the share that is among the first. */
function measure(engine: string, search: Search, questions: readonly BenchQuestion[]): Line {
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
