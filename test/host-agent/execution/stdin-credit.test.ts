import { expect, test } from 'vitest';
import { StdinCredit } from '../../../host-agent/execution/stdin-credit.ts';
import type { UpFrame, Uplink } from '../../../host-agent/execution/uplink.ts';
import { newId } from '../../../shared/ids.ts';

class FakeUplink implements Uplink {
  readonly sent: UpFrame[] = [];
  readonly room = Promise.withResolvers<void>();
  isOverfull = false;

  send(frame: UpFrame): number {
    return this.sent.push(frame);
  }

  waitForRoom(): Promise<void> {
    return this.room.promise;
  }

  hasRoom(): boolean {
    return !this.isOverfull;
  }

  async whenAcknowledged(): Promise<void> {}

  unacknowledgedOf(): [] {
    return [];
  }
}

const executionId = newId('exe');
const told = (bytes: number) => ({ type: 'stdin_taken', execution_id: executionId, bytes });

test('tells what was taken at once', () => {
  const uplink = new FakeUplink();
  const credit = new StdinCredit(executionId, uplink, () => true);
  credit.taken(1);
  credit.taken(3);
  expect(uplink.sent).toEqual([told(1), told(3)]);
});

test('tells the last total once, when an edge that acknowledges nothing takes frames again', async () => {
  const uplink = new FakeUplink();
  const credit = new StdinCredit(executionId, uplink, () => true);
  uplink.isOverfull = true;
  for (let bytes = 1; bytes <= 1_000; bytes++) credit.taken(bytes);
  expect(uplink.sent).toEqual([]);
  uplink.room.resolve();
  await uplink.room.promise;
  expect(uplink.sent).toEqual([told(1_000)]);
});

test('tells nothing of an execution that has ended', () => {
  const uplink = new FakeUplink();
  new StdinCredit(executionId, uplink, () => false).taken(1);
  expect(uplink.sent).toEqual([]);
});
