/** Tools that tests register: the one is called by the gateway, the other is answered by who calls. */
export const STOCK_PRICE = {
  name: 'stock-price',
  version: '7',
  description: 'Looks a price up',
  kind: 'http',
  method: 'GET',
  url: 'https://prices.example.com/{symbol}',
  side_effects: ['read'],
  input_schema: { type: 'object', properties: { symbol: { type: 'string' } }, required: ['symbol'] },
};

export const ASK = {
  name: 'people.ask',
  description: 'Asks a person',
  kind: 'client',
  side_effects: ['read'],
  input_schema: {
    type: 'object',
    properties: { question: { type: 'string' }, urgent: { type: 'boolean' } },
    required: ['question'],
    additionalProperties: false,
  },
};
