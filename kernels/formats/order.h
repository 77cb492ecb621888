// The orders in which a format's header may pair a lane's eight values of a group of 32.
#define PAIRS_NATURAL 0  // eight in a row: (0,1) (2,3) (4,5) (6,7)
#define PAIRS_CROSSED 1  // eight in a row: (0,2) (1,3) (4,6) (5,7)
#define PAIRS_QUADS 2    // four and four 16 later: (0,2) (1,3) of each
#define PAIRS_ZIPPED 3   // four and four 16 later: (0,4) (1,5) (2,6) (3,7)
