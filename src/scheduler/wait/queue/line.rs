//! A line: what stands in order, mostly joined at its end and served from its beginning.
//!
//! Orders of one class only grow ([`Order::new`]), so each class is a double-ended queue, and the first of all is the least of the
//! classes' firsts. Whoever leaves from the middle leaves a gap. A gap is never first nor last, and there are never more gaps than
//! others, by more than a few; so
//!
//! | | cost, with `k` classes in line and `n` in the class |
//! |---|---|
//! | join, serve the first | O(1), amortized |
//! | who is first | O(k) |
//! | find, leave from the middle | O(log n), amortized |
//! | come back to one's own place | O(log n) if its gap is there still, else O(n) |
//!
//! An ordered map in its place cost 310 instructions more for each wait.

use std::collections::VecDeque;

use super::order::Order;

/// Gaps that are let be, however few others there are.
const FEW: usize = 32;

struct Class<T> {
    places: VecDeque<(Order, Option<T>)>,
    gaps: usize,
}

/// See the module header.
pub struct Line<T> {
    /// By class; as many as the highest that was ever in line.
    classes: Vec<Class<T>>,
    /// The classes in which somebody stands.
    busy: [u64; 4],
    len: usize,
}

impl<T> Line<T> {
    pub const fn new() -> Self {
        Line { classes: Vec::new(), busy: [0; 4], len: 0 }
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds it at its place, where nothing stands.
    pub fn insert(&mut self, order: Order, item: T) {
        let class = order.class();
        if class >= self.classes.len() {
            self.classes.resize_with(class + 1, || Class { places: VecDeque::new(), gaps: 0 });
        }
        self.busy[class / 64] |= 1 << (class % 64);
        self.len += 1;
        let Class { places, gaps } = &mut self.classes[class];
        if places.back().is_none_or(|&(last, _)| last < order) {
            return places.push_back((order, Some(item)));
        }
        match places.binary_search_by_key(&order, |&(order, _)| order) {
            Ok(gap) => {
                debug_assert!(places[gap].1.is_none(), "nobody stands there");
                places[gap].1 = Some(item);
                *gaps -= 1;
            }
            Err(between) => places.insert(between, (order, Some(item))),
        }
    }

    /// Takes it out.
    pub fn remove(&mut self, order: Order) -> Option<T> {
        let class = order.class();
        let found = self.classes.get_mut(class)?;
        let item = found.remove(order)?;
        self.len -= 1;
        if found.places.is_empty() {
            self.busy[class / 64] &= !(1 << (class % 64));
        }
        Some(item)
    }

    pub fn get(&self, order: Order) -> Option<&T> {
        let class = self.classes.get(order.class())?;
        class.places[class.find(order)?].1.as_ref()
    }

    pub fn get_mut(&mut self, order: Order) -> Option<&mut T> {
        let class = self.classes.get_mut(order.class())?;
        let place = class.find(order)?;
        class.places[place].1.as_mut()
    }

    /// The first of all.
    pub fn first(&self) -> Option<Order> {
        if let [only] = &*self.classes {
            return only.places.front().map(|&(order, _)| order);
        }
        self.busy().filter_map(|class| Some(self.classes[class].places.front()?.0)).min()
    }

    /// All, class by class.
    pub fn orders(&self) -> impl Iterator<Item = Order> {
        let places = self.busy().flat_map(|class| &self.classes[class].places);
        places.filter(|(_, item)| item.is_some()).map(|&(order, _)| order)
    }

    fn busy(&self) -> impl Iterator<Item = usize> {
        self.busy.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                (rest != 0).then(|| rest &= rest - 1).map(|()| i * 64 + bit)
            })
        })
    }
}

impl<T> Class<T> {
    fn find(&self, order: Order) -> Option<usize> {
        // Mostly the first is looked for.
        if self.places.front().is_some_and(|&(first, _)| first == order) {
            return Some(0);
        }
        self.places.binary_search_by_key(&order, |&(order, _)| order).ok()
    }

    fn remove(&mut self, order: Order) -> Option<T> {
        if self.places.front().is_some_and(|&(first, _)| first == order) {
            let (_, item) = self.places.pop_front()?;
            while let Some((_, None)) = self.places.front() {
                self.places.pop_front();
                self.gaps -= 1;
            }
            return item;
        }
        let place = self.find(order)?;
        let item = self.places[place].1.take()?;
        self.gaps += 1;
        while let Some((_, None)) = self.places.back() {
            self.places.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > FEW + self.places.len() / 2 {
            self.places.retain(|(_, item)| item.is_some());
            self.gaps = 0;
        }
        Some(item)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const AGEING: u32 = 4;

    /// What happens to a line, with a choice among whoever is, or was, in it.
    #[derive(Clone, Debug)]
    enum Step {
        Join(u8),
        ServeFirst,
        Leave(prop::sample::Index),
        ComeBack(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => prop_oneof![Just(0), Just(1), Just(200), any::<u8>()].prop_map(Step::Join),
            2 => Just(Step::ServeFirst),
            2 => any::<prop::sample::Index>().prop_map(Step::Leave),
            1 => any::<prop::sample::Index>().prop_map(Step::ComeBack),
        ];
        prop::collection::vec(step, 0..600)
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map(steps in steps()) {
            let mut line = Line::new();
            let mut map = BTreeMap::new();
            let (mut arrivals, mut left) = (0, Vec::new());
            for step in steps {
                match step {
                    Step::Join(class) => {
                        arrivals += 1;
                        let order = Order::new(arrivals, class, AGEING);
                        line.insert(order, arrivals);
                        map.insert(order, arrivals);
                    }
                    Step::ServeFirst => if let Some(first) = line.first() {
                        prop_assert_eq!(line.remove(first), map.remove(&first));
                        left.push(first);
                    },
                    Step::Leave(index) if !map.is_empty() => {
                        let order = *index.get(&map.keys().copied().collect::<Vec<_>>());
                        prop_assert_eq!(line.remove(order), map.remove(&order));
                        prop_assert_eq!(line.remove(order), None);
                        left.push(order);
                    }
                    Step::ComeBack(index) if !left.is_empty() => {
                        let order = left.swap_remove(index.index(left.len()));
                        line.insert(order, 0);
                        map.insert(order, 0);
                    }
                    Step::Leave(_) | Step::ComeBack(_) => {}
                }
                prop_assert_eq!(line.first(), map.keys().next().copied());
                prop_assert_eq!(line.is_empty(), map.is_empty());
                for class in &line.classes {
                    prop_assert!(class.gaps <= FEW + class.places.len() / 2);
                    prop_assert!(class.places.front().is_none_or(|(_, item)| item.is_some()));
                }
            }
            let mut orders: Vec<_> = line.orders().collect();
            orders.sort_unstable();
            prop_assert_eq!(orders, map.keys().copied().collect::<Vec<_>>());
            for (&order, item) in &map {
                prop_assert_eq!(line.get(order), Some(item));
                prop_assert_eq!(line.get_mut(order).map(|item| *item), Some(*item));
            }
        }
    }

    #[test]
    fn who_leaves_from_the_middle_leaves_no_room_taken() {
        let mut line = Line::new();
        let first = Order::new(0, 0, AGEING);
        line.insert(first, ());
        for arrival in 1..100_000 {
            let order = Order::new(arrival, 0, AGEING);
            line.insert(order, ());
            // Not the last: its gap would go at once.
            if arrival > 1 {
                assert!(line.remove(Order::new(arrival - 1, 0, AGEING)).is_some());
            }
        }
        assert_eq!(line.first(), Some(first));
        assert!(line.classes[0].places.len() < 2 * FEW + 4, "{}", line.classes[0].places.len());
    }
}
