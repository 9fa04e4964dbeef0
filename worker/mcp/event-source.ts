/** The events of a session object's stream, parsed. */
import { type StreamEvent, StreamEventSchema } from '../../shared/execution.ts';

const DATA = 'data: ';
const ID = 'id: ';

/** Each with the place behind it. */
export async function* streamEventsOf(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<{ cursor: string; event: StreamEvent }> {
  let unfinished = '';
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const blocks = `${unfinished}${text}`.split('\n\n');
    unfinished = blocks.pop() ?? '';
    for (const block of blocks) {
      const lines = block.split('\n');
      const fieldOf = (field: string) => lines.find((line) => line.startsWith(field))?.slice(field.length);
      const data = fieldOf(DATA);
      if (data === undefined) continue;
      yield { cursor: fieldOf(ID) ?? '', event: StreamEventSchema.parse(JSON.parse(data)) };
    }
  }
}
