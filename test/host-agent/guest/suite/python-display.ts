/** What a Python cell shows beside its output. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Kernel } from '../../../../host-agent/guest-link/kernel.ts';
import type { GuestUnderTest } from '../guest-under-test.ts';
import { cellsOf, startPython } from './cells.ts';

/** Behaves towards the kernel as matplotlib does, which the image of these tests has not. */
const FAKE_MATPLOTLIB = `
import os, sys
os.makedirs("fake/matplotlib", exist_ok=True)
open("fake/matplotlib/__init__.py", "w").close()
with open("fake/matplotlib/figure.py", "w") as file: file.write("""
class Figure:
    def __init__(self, number): self.number = number
    def savefig(self, file, format, **options):
        assert format == "png"
        if self.number == 13: raise RuntimeError("unlucky")
        file.write(b"png of %d" % self.number)
""")
with open("fake/matplotlib/pyplot.py", "w") as file: file.write("""
import os
from matplotlib.figure import Figure
backend = os.environ["MPLBACKEND"]
figures = {}
def figure(number=None):
    number = number or len(figures) + 1
    return figures.setdefault(number, Figure(number))
def get_fignums(): return sorted(figures)
def close(which):
    for number, figure in list(figures.items()):
        if which == "all" or which is figure: del figures[number]
def show(): raise NotImplementedError("a window")
""")
sys.path.insert(0, os.path.abspath("fake"))
`;
const png = (text: string) => ({ mime: 'image/png', data: Buffer.from(text).toString('base64') });
const plain = (data: string) => ({ mime: 'text/plain', data });

export function describePythonDisplay(guest: () => GuestUnderTest): void {
  let kernel: Kernel;
  const { run } = cellsOf(() => kernel);

  beforeAll(async () => {
    kernel = await startPython(guest());
    expect((await run(FAKE_MATPLOTLIB)).error).toBeNull();
  });
  afterAll(async () => {
    await kernel.dispose();
  });

  it('gives a table as data too, bounded, and without it where it has no such form', async () => {
    // Behaves towards the kernel as pandas does, which the image of these tests has not.
    const pandas = `import json, sys, types
class DataFrame:
  def __init__(self, rows, columns=1, cell="x", fails=False):
    self.shape, self.cell, self.fails = (rows, columns), cell, fails
  def __len__(self): return self.shape[0]
  def head(self, rows): return DataFrame(rows, self.shape[1], self.cell, self.fails)
  def to_json(self, orient, date_format, force_ascii, default_handler):
    if self.fails: raise NotImplementedError("columns of several levels")
    return json.dumps({"schema": {}, "data": [self.cell] * len(self)}, ensure_ascii=force_ascii)
  def _repr_html_(self): return "<table/>"
  def __repr__(self): return "a table"
sys.modules["pandas"] = types.SimpleNamespace(DataFrame=DataFrame)
`;
    const html = { mime: 'text/html', data: '<table/>' };
    const tableOf = async (code: string) => {
      const { results, value } = await run(code);
      expect([value, results[0]]).toEqual(['a table', html]);
      const table = results[1];
      if (table === undefined) return undefined;
      expect(table.mime).toBe('application/vnd.dataresource+json');
      const { data, ...facts } = JSON.parse(table.data);
      return { ...facts, rows: data.length };
    };
    const schema = {};
    expect(await tableOf(`${pandas}DataFrame(3)`)).toEqual({
      total_rows: 3,
      truncated: false,
      schema,
      rows: 3,
    });
    expect(await tableOf('DataFrame(5000)')).toMatchObject({
      total_rows: 5_000,
      truncated: true,
      rows: 1_000,
    });
    expect(await tableOf('DataFrame(5000, columns=99)')).toMatchObject({ truncated: true, rows: 200 });
    expect(await tableOf('DataFrame(8, cell="é" * 100_000)')).toMatchObject({ truncated: true, rows: 4 });
    expect(await tableOf('DataFrame(1, cell="x" * 600_000)')).toBeUndefined();
    expect(await tableOf('DataFrame(2, columns=30_000)')).toBeUndefined();
    expect(await tableOf('DataFrame(3, fails=True)')).toBeUndefined();
    expect((await run('del sys.modules["pandas"]; DataFrame(3)')).results).toEqual([html]);
  });

  it('offers the representations of the value beside it', async () => {
    const code = `class R:
  def _repr_html_(self): return "<b>é</b>"
  def _repr_markdown_(self): return "*é*"
  def _repr_latex_(self): return "$x$", {"metadata": 1}
  def _repr_svg_(self): return "<svg/>"
  def _repr_png_(self): return b"\\x89P"
  def _repr_json_(self): return {"a": [1, "é"]}
  def _repr_jpeg_(self): return None
  def __repr__(self): return "R!"
R()`;
    expect(await run(code)).toMatchObject({
      value: 'R!',
      results: [
        { mime: 'text/html', data: '<b>é</b>' },
        { mime: 'text/markdown', data: '*é*' },
        { mime: 'text/latex', data: '$x$' },
        { mime: 'image/svg+xml', data: '<svg/>' },
        { mime: 'image/png', data: 'iVA=' },
        { mime: 'application/json', data: '{"a": [1, "\\u00e9"]}' },
      ],
    });
    expect((await run('R')).results).toEqual([]);
  });

  it('takes a bundle before single representations, and its text only where nothing is richer', async () => {
    const code = `class B:
  def _repr_mimebundle_(self, include=None, exclude=None):
    return {"text/plain": "text", "text/html": "<i>", "application/x+json": [1], "no type": "x", "image/png": b"P"}
  def _repr_html_(self): return "<u>"
class T:
  def _repr_mimebundle_(self, **_): return {"text/plain": "only text"}, {}
display(B(), T())`;
    expect((await run(code)).results).toEqual([
      { mime: 'text/html', data: '<i>' },
      { mime: 'application/x+json', data: '[1]' },
      png('P'),
      plain('only text'),
    ]);
  });

  it('shows in the order of calls, the value last', async () => {
    const code = `class H:
  def __init__(self, text): self.text = text
  def _repr_html_(self): return self.text
display(1, H("one"))
def later(): display("two")
later()
H("three")`;
    expect((await run(code)).results).toEqual([
      plain('1'),
      { mime: 'text/html', data: 'one' },
      plain("'two'"),
      { mime: 'text/html', data: 'three' },
    ]);
    expect(await run('1')).toMatchObject({ results: [] });
  });

  it('keeps what was shown before a cell failed', async () => {
    expect(await run('display(1)\n1/0')).toMatchObject({ status: 'failed', results: [plain('1')] });
  });

  it('notes a representation that fails, and the cell succeeds', async () => {
    const code = `class F:
  def _repr_html_(self): raise OSError("no html")
  def _repr_json_(self): return float("nan")
  def _repr_markdown_(self): return "still here"
class U:
  def __repr__(self): raise KeyError("none")
display(U())
F()`;
    const { status, results, stderr } = await run(code);
    expect(status).toBe('succeeded');
    expect(results).toEqual([plain('<unprintable U object>'), { mime: 'text/markdown', data: 'still here' }]);
    expect(stderr).toContain('_repr_html_ of F cannot be shown: OSError: no html\n');
    expect(stderr).toContain('_repr_json_ of F cannot be shown: ValueError');
    expect(stderr).toContain('__repr__ of U cannot be shown: KeyError');
  });

  it('leaves out what does not fit, and says so', async () => {
    const big = `class Big:
  def __init__(self, size): self.size = size
  def _repr_png_(self): return b"x" * self.size
display(Big(3_000_000), Big(3_000_000), Big(30))`;
    const shown = (await run(big)).results;
    expect(shown.map(({ mime }) => mime)).toEqual(['image/png', 'text/plain', 'image/png']);
    expect(shown[1]?.data).toContain('image/png of 4000000 bytes left out');
    const many = (await run('for i in range(1000): display(i)')).results;
    expect(many).toHaveLength(64);
    expect(many[62]).toEqual(plain('62'));
    expect(many[63]?.data).toContain('the rest is left out');
    const escaped = await run('class E:\n  def _repr_html_(self): return "\\x01" * 6_000_000\nE()');
    expect(escaped.results[0]?.data).toHaveLength(6_000_000);
  });

  it('does not load matplotlib by itself', async () => {
    expect((await run('"matplotlib" in sys.modules')).value).toBe('False');
  });

  it('shows the figures that are open at the end of a cell once, and closes them', async () => {
    const { results } = await run('import matplotlib.pyplot as plt\nplt.figure()\nplt.figure()\n5');
    expect(results).toEqual([png('png of 1'), png('png of 2')]);
    expect(await run('plt.get_fignums(), plt.backend')).toMatchObject({ value: "([], 'agg')", results: [] });
  });

  it('shows at pyplot.show() what is open then', async () => {
    const { results } = await run('plt.figure(1)\nplt.show()\ndisplay("between")\nplt.figure(2)\nplt.show()');
    expect(results).toEqual([png('png of 1'), plain("'between'"), png('png of 2')]);
    expect((await run('plt.show()')).results).toEqual([]);
  });

  it('shows a figure that is the value, or was displayed, only once', async () => {
    expect(await run('plt.figure(3)')).toMatchObject({ results: [png('png of 3')] });
    expect((await run('f = plt.figure(4)\ndisplay(f)\nplt.figure(5)\nNone')).results).toEqual([
      png('png of 4'),
      png('png of 5'),
    ]);
    expect((await run('f')).results).toEqual([png('png of 4')]);
  });

  it('shows the figures of a cell that failed, and goes on where one cannot be drawn', async () => {
    const failed = await run('plt.figure(6)\n1/0');
    expect(failed).toMatchObject({ error: { name: 'ZeroDivisionError' }, results: [png('png of 6')] });
    expect(failed.error?.traceback).not.toContain('python');
    const unlucky = await run('plt.figure(13)\nplt.figure(14)\nNone');
    expect(unlucky).toMatchObject({ status: 'succeeded', results: [png('png of 14')] });
    expect(unlucky.stderr).toBe('the figure cannot be shown: RuntimeError: unlucky\n');
    expect((await run('plt.get_fignums()')).value).toBe('[]');
  });

  it('shows nothing from a process that a cell forked', async () => {
    const code = `plt.figure(7)
import os
pid = os.fork()
if pid == 0:
  plt.show()
  os._exit(0)
os.waitpid(pid, 0)[1]`;
    expect(await run(code)).toMatchObject({ value: '0', results: [png('png of 7')] });
  });
}
