/** Words that ask for the same thing, in the way people name tools and in the way they ask for them. */
import { stemOf } from './stem.ts';

const GROUPS = [
  'create add new make generate insert register build produce compose',
  'delete remove erase drop destroy unregister clear discard',
  'get fetch retrieve read show view obtain load pull display give provide return',
  'list enumerate browse index',
  'search find query lookup locate discover seek',
  'update modify edit change alter adjust revise patch set',
  'send post submit deliver dispatch transmit',
  'calculate compute determine evaluate work figure',
  'convert transform translate exchange',
  'book reserve schedule reservation appointment booking',
  'buy purchase order acquire checkout',
  'cancel abort stop terminate kill halt end',
  'start run launch begin execute invoke trigger open',
  'check verify validate confirm test inspect',
  'analyze examine assess investigate study',
  'estimate predict forecast project',
  'summarize summary abstract digest',
  'merge combine join concatenate',
  'copy duplicate clone replicate',
  'move rename relocate transfer',
  'email mail message inbox',
  'picture image photo photograph illustration',
  'movie film cinema',
  'song music track tune',
  'weather forecast temperature climate',
  'file document doc',
  'directory folder',
  'price cost fee rate quote',
  'money cash currency payment pay',
  'stock share equity',
  'company business firm corporation enterprise',
  'job work employment career position',
  'user account member customer client person',
  'hotel accommodation lodging stay',
  'flight airline plane airfare',
  'trip travel journey tour',
  'car vehicle automobile ride taxi cab',
  'restaurant food dining meal eat',
  'recipe dish cook',
  'house home property apartment',
  'doctor physician medical health',
  'medicine drug medication',
  'city town place location area',
  'distance far length',
  'route direction navigation path way',
  'phone telephone call mobile',
  'website webpage site web url link page',
  'news article headline',
  'event meeting calendar',
  'task todo reminder ticket issue',
  'repo repository project',
  'error exception bug failure fault',
  'folder dir',
  'size magnitude',
  'average mean',
  'math mathematics mathematical arithmetic',
  'largest biggest greatest maximum max highest top',
  'smallest least minimum min lowest',
  'information info detail data',
  'shell terminal command console bash',
  'database db table sql',
  'lyrics words text',
  'game play match',
  'shop store market',
  'population people inhabitants',
  'law legal court lawsuit',
  'plant flower crop',
  'animal pet species',
];

const BY_STEM: ReadonlyMap<string, ReadonlySet<string>> = index();

function index(): Map<string, Set<string>> {
  const byStem = new Map<string, Set<string>>();
  for (const group of GROUPS) {
    const stems = group.split(' ').map(stemOf);
    for (const stem of stems) {
      const others = byStem.get(stem) ?? new Set();
      for (const other of stems) if (other !== stem) others.add(other);
      byStem.set(stem, others);
    }
  }
  return byStem;
}

const NONE: ReadonlySet<string> = new Set();

export function synonymsOf(stem: string): ReadonlySet<string> {
  return BY_STEM.get(stem) ?? NONE;
}
