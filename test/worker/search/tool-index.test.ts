import { describe, expect, test } from 'vitest';
import { stemOf } from '../../../worker/search/stem.ts';
import { type IndexedTool, ToolIndex } from '../../../worker/search/tool-index.ts';
import { wordsOf } from '../../../worker/search/words.ts';

const everything = { limit: 10, accepts: () => true };

function tool(name: string, description: string, more: Partial<IndexedTool> = {}): IndexedTool {
  return { name, title: '', description, category: '', parameters: '', ...more };
}

function indexOf(tools: readonly IndexedTool[]): ToolIndex {
  const index = new ToolIndex();
  for (const one of tools) index.put(one.name, one);
  return index;
}

const TOOLS = [
  tool('getWeatherForecast', 'Weather of the next days at a place', { parameters: 'city name of the city' }),
  tool('send_email', 'Sends a message to one or more recipients', { parameters: 'subject\nrecipients' }),
  tool('calendar.create_event', 'Puts an event into the calendar'),
  tool('filesystem_read', 'Reads a file from the disk'),
  tool('currency-convert', 'Converts an amount of money between currencies', {
    parameters: 'amount\nto_currency',
  }),
  tool('deleteUserAccount', 'Removes a user for good'),
];
const index = indexOf(TOOLS);
const first = (query: string) => index.search(query, everything)[0]?.id;

describe('a search', () => {
  test.each([
    ['the words of its name, however it is written', 'get weather forecast', 'getWeatherForecast'],
    ['other forms of its words', 'converting currencies', 'currency-convert'],
    ['words that say the same', 'mail somebody', 'send_email'],
    ['words that say the same of what it does', 'erase an account', 'deleteUserAccount'],
    ['a compound in two words', 'file system read', 'filesystem_read'],
    ['two words written as one', 'createevent in the calendar', 'calendar.create_event'],
    ['a misspelt word', 'wether forcast', 'getWeatherForecast'],
    ['the names of its arguments', 'recipients and subject', 'send_email'],
  ])('finds a tool by %s', (_, query, expected) => {
    expect(first(query)).toBe(expected);
  });

  test.each(['', '   ', 'the of and', 'xqzzvw', '🙂', 'Ωμέγα'])(
    'that fits nothing gives nothing: %j',
    (query) => {
      expect(index.search(query, everything)).toEqual([]);
    },
  );

  test('looks only at what is accepted', () => {
    const accepts = (id: string) => id !== 'getWeatherForecast';
    const ids = index.search('weather forecast money', { limit: 10, accepts }).map(({ id }) => id);
    expect(ids).toEqual(['currency-convert']);
  });

  test('gives the best first, and ties in the order of their names', () => {
    const twins = indexOf([tool('b', 'same words'), tool('a', 'same words'), tool('c', 'same')]);
    expect(twins.search('same words', everything).map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    expect(twins.search('same words', { ...everything, limit: 1 })).toHaveLength(1);
  });
});

describe('a change', () => {
  test('is found at once, and what was there before is not', () => {
    const changing = indexOf(TOOLS);
    changing.put('send_email', tool('send_email', 'Sends a parcel by post'));
    expect(changing.search('parcel', everything).map(({ id }) => id)).toEqual(['send_email']);
    expect(changing.search('recipients', everything)).toEqual([]);
    changing.remove('send_email');
    expect(changing.search('parcel', everything)).toEqual([]);
    expect(changing.size).toBe(TOOLS.length - 1);
  });

  test('again and again leaves nothing behind', () => {
    const changing = new ToolIndex();
    for (let round = 0; round < 500; round += 1) changing.put('x', tool('x', `round${round} word`));
    expect(changing.size).toBe(1);
    expect(changing.search('word', everything)).toHaveLength(1);
    expect(changing.search('round499', everything)).toHaveLength(1);
  });
});

describe('words', () => {
  test.each([
    ['getUserHTTPUrl', ['get', 'user', 'http', 'url']],
    ['get_user-http.url', ['get', 'user', 'http', 'url']],
    ['v2Search3', ['v', '2', 'search', '3']],
    ['Café del Mar', ['cafe', 'del', 'mar']],
    ['天気予報', ['天気', '気予', '予報']],
  ])('of %s', (text, expected) => {
    expect(wordsOf(text)).toEqual(expected);
  });

  test.each([
    ['convert', 'converts', 'converting', 'converted'],
    ['city', 'cities'],
    ['calculate', 'calculates', 'calculating', 'calculation', 'calculator'],
    ['file', 'files'],
    ['delete', 'deletes', 'deleting'],
  ])('of one family have one stem: %s', (...words) => {
    expect(new Set(words.map(stemOf)).size).toBe(1);
  });
});

test('a question that asks for several things finds a tool for each, however many fit one of them', () => {
  const days = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split(' ');
  const many = indexOf([
    ...TOOLS,
    ...days.map((day) => tool(`report_${day}`, `Quarterly sales report of the region, made on ${day}`)),
  ]);
  const asked =
    'Please make the quarterly sales report of the whole northern region, and then delete a user.';
  const ids = many.search(asked, { ...everything, limit: 2 }).map(({ id }) => id);
  expect(ids).toContain('deleteUserAccount');
  expect(ids.filter((id) => id.startsWith('report_'))).toHaveLength(1);
  const alone = many.search('delete a user', everything)[0]?.id;
  expect(alone).toBe('deleteUserAccount');
});

describe('of tools that have the same of the words, first is', () => {
  const ids = (tools: readonly IndexedTool[], query: string) =>
    indexOf(tools)
      .search(query, everything)
      .map(({ id }) => id);

  test('the one that has them side by side', () => {
    const tools = [tool('a', 'Credit line and card'), tool('b', 'Line and credit card')];
    expect(ids(tools, 'a new credit card')).toEqual(['b', 'a']);
    expect(ids(tools, 'a new credit')).toEqual(['a', 'b']);
  });

  test('the one that has more in common with the others', () => {
    const tools = ['sales', 'weather', 'weather'].map((of, at) =>
      tool(['a', 'b', 'c'][at] ?? '', `Forecast of ${of}`),
    );
    expect(ids(tools, 'forecast')).toEqual(['b', 'c', 'a']);
  });

  test.each([
    ['plans concerning movies or Paris', ['b', 'a']],
    ['plans concerning movies or "paris"', ['b', 'a']],
    ['plans concerning movies or paris', ['a', 'b']],
    ['Plans Concerning Movies Or Paris', ['a', 'b']],
  ])('the one that does what is asked, rather than the one named like a value: %s', (query, expected) => {
    expect(ids([tool('a', 'Plans of Paris'), tool('b', 'Plans of movies')], query)).toEqual(expected);
  });
});

test('numbers of a question find nothing by themselves where it has words', () => {
  const numbered = indexOf([...TOOLS, tool('form_13', 'Files form 13'), tool('form_14', 'Files form 14')]);
  const weather = numbered.search('weather in Oslo on 13 14 2024', everything);
  expect(weather.map(({ id }) => id)).toEqual(['getWeatherForecast']);
  expect(numbered.search('14', everything).map(({ id }) => id)).toEqual(['form_14']);
});

test('words beyond any language are left out, and those that are known go on being found', () => {
  const full = indexOf(TOOLS);
  const word = (at: number) =>
    [17_576, 676, 26, 1].map((place) => String.fromCharCode(97 + (Math.floor(at / place) % 26))).join('');
  for (let at = 0; at < 110_000; at += 500) {
    const words = Array.from({ length: 500 }, (_, next) => `${word(at + next)}q`);
    full.put(`noise ${at}`, tool(`noise ${at}`, words.join(' ')));
  }
  full.put('late', tool('late', 'A forecast of zzyzxwv'));
  expect(full.search('zzyzxwv', everything).map(({ id }) => id)).not.toContain('late');
  expect(full.search('forecast', everything).map(({ id }) => id)).toContain('late');
});
