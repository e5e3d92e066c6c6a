//! A graph of nodes and the nodes that each depends on.

/// Nodes by their places, each with the places it depends on.
#[derive(Debug, Clone)]
pub struct Graph {
    on: Vec<Vec<usize>>,
}

impl Graph {
    #[must_use]
    pub fn new(on: Vec<Vec<usize>>) -> Self {
        Self { on }
    }

    /// Returns the nodes, each after those it depends on, otherwise in their own order. Nodes of a cycle, and those
    /// behind one, are left out.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let followers = self.followers();
        let mut missing: Vec<usize> = self.on.iter().map(Vec::len).collect();
        let mut ready: std::collections::BTreeSet<usize> =
            (0..self.on.len()).filter(|place| missing[*place] == 0).collect();
        let mut order = Vec::with_capacity(self.on.len());
        while let Some(place) = ready.pop_first() {
            order.push(place);
            for follower in &followers[place] {
                missing[*follower] -= 1;
                if missing[*follower] == 0 {
                    ready.insert(*follower);
                }
            }
        }
        order
    }

    /// Returns the nodes of a cycle in its order, if there is one.
    #[must_use]
    pub fn cycle(&self) -> Option<Vec<usize>> {
        let ordered: std::collections::HashSet<usize> = self.order().into_iter().collect();
        // Every node that is left has another one that is left below it, so walking down comes to a cycle.
        let mut path: Vec<usize> = vec![(0..self.on.len()).find(|place| !ordered.contains(place))?];
        loop {
            let last = *path.last()?;
            let next = *self.on[last].iter().find(|place| !ordered.contains(place))?;
            if let Some(start) = path.iter().position(|place| *place == next) {
                return Some(path.split_off(start));
            }
            path.push(next);
        }
    }

    /// Returns the nodes that depend on one, directly or not, in their order.
    #[must_use]
    pub fn dependents(&self, place: usize) -> Vec<usize> {
        let followers = self.followers();
        let (mut found, mut to_visit) = (std::collections::BTreeSet::new(), vec![place]);
        while let Some(here) = to_visit.pop() {
            for follower in &followers[here] {
                if found.insert(*follower) {
                    to_visit.push(*follower);
                }
            }
        }
        found.into_iter().collect()
    }

    /// Returns the nodes by their level: the longest way to them from a node that depends on nothing.
    #[must_use]
    pub fn levels(&self) -> Vec<Vec<usize>> {
        let mut level = vec![0; self.on.len()];
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for place in self.order() {
            level[place] = self.on[place].iter().map(|on| level[*on] + 1).max().unwrap_or(0);
            if levels.len() <= level[place] {
                levels.resize_with(level[place] + 1, Vec::new);
            }
            levels[level[place]].push(place);
        }
        levels
    }

    fn followers(&self) -> Vec<Vec<usize>> {
        let mut followers = vec![Vec::new(); self.on.len()];
        for (place, on) in self.on.iter().enumerate() {
            for other in on {
                followers[*other].push(place);
            }
        }
        followers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_after_what_they_depend_on() {
        let graph = Graph::new(vec![vec![2], vec![], vec![1], vec![0, 1]]);
        assert_eq!(graph.order(), [1, 2, 0, 3]);
        assert_eq!(graph.cycle(), None);
        assert_eq!(graph.dependents(1), [0, 2, 3]);
        assert_eq!(graph.dependents(3), Vec::<usize>::new());
        assert_eq!(graph.levels(), [vec![1], vec![2], vec![0], vec![3]]);
    }

    #[test]
    fn a_cycle_is_found_behind_other_nodes() {
        let graph = Graph::new(vec![vec![1], vec![2], vec![3], vec![1], vec![]]);
        assert_eq!(graph.cycle(), Some(vec![1, 2, 3]));
        assert_eq!(Graph::new(vec![vec![0]]).cycle(), Some(vec![0]));
    }
}
