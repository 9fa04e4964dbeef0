/** The events of a session object's stream, parsed. */
import { type StreamEvent, StreamEventSchema } from '../../shared/execution.ts';

const DATA = 'data: ';

export async function* streamEventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent> {
  let unfinished = '';
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const blocks = `${unfinished}${text}`.split('\n\n');
    unfinished = blocks.pop() ?? '';
    for (const block of blocks) {
      const data = block.split('\n').find((line) => line.startsWith(DATA));
      if (data !== undefined) yield StreamEventSchema.parse(JSON.parse(data.slice(DATA.length)));
    }
  }
}
